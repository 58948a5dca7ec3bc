//! Plans that were made before. A plan takes some fifty microseconds to make, every partition asks for several, and there
//! are few different ones: a device sees few circuits, and few amounts of free memory.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::error::PlanError;
use crate::policy::plan::{
    least_budget_bytes, plan, plan_with_resident, ProvePlan, QuerySet, ShapeSummary, SrsSummary,
};
use crate::policy::shared_pass::{has_shared_queries, max_members};

/// Plans kept at most, some 400 B each. An embedding host may name any number of circuits; beyond this all are made
/// anew.
const MAX_PLANS: usize = 1_024;

/// What a plan depends on. `resident`: `None`, if the plan is to choose.
type Key = (ShapeSummary, SrsSummary, Option<QuerySet>, u64);

/// Answers as [`crate::policy::plan`] does.
#[derive(Debug, Default)]
pub struct Plans {
    made: RefCell<HashMap<Key, Result<ProvePlan, PlanError>>>,
    least: RefCell<HashMap<(ShapeSummary, SrsSummary), u64>>,
    members: RefCell<HashMap<MembersKey, u32>>,
}

/// What the number of members of a pass depends on: the circuit, what is resident, the memory, and the limit.
type MembersKey = (ShapeSummary, SrsSummary, QuerySet, u64, u32);

impl Plans {
    /// # Errors
    /// As [`plan`].
    pub fn plan(
        &self,
        shape: &ShapeSummary,
        srs: &SrsSummary,
        budget_bytes: u64,
    ) -> Result<ProvePlan, PlanError> {
        self.get((*shape, *srs, None, budget_bytes), || plan(shape, srs, budget_bytes))
    }

    /// # Errors
    /// As [`plan_with_resident`].
    pub fn plan_with_resident(
        &self,
        shape: &ShapeSummary,
        srs: &SrsSummary,
        resident: QuerySet,
        budget_bytes: u64,
    ) -> Result<ProvePlan, PlanError> {
        let key = (*shape, *srs, Some(resident), budget_bytes);
        self.get(key, || plan_with_resident(shape, srs, resident, budget_bytes))
    }

    /// As [`least_budget_bytes`].
    pub fn least_budget_bytes(&self, shape: &ShapeSummary, srs: &SrsSummary) -> u64 {
        let mut least = self.least.borrow_mut();
        if least.len() >= MAX_PLANS {
            least.clear();
        }
        *least.entry((*shape, *srs)).or_insert_with(|| least_budget_bytes(shape, srs))
    }

    /// As [`max_members`].
    pub fn max_members(&self, shape: &ShapeSummary, srs: &SrsSummary, plan: &ProvePlan, most: u32) -> u32 {
        if !has_shared_queries(plan) {
            return 0;
        }
        let mut members = self.members.borrow_mut();
        if members.len() >= MAX_PLANS {
            members.clear();
        }
        let key = (*shape, *srs, plan.resident, plan.work_peak_bytes(), most);
        *members.entry(key).or_insert_with(|| max_members(shape, srs, plan, most))
    }

    fn get(
        &self,
        key: Key,
        make: impl FnOnce() -> Result<ProvePlan, PlanError>,
    ) -> Result<ProvePlan, PlanError> {
        let mut made = self.made.borrow_mut();
        if made.len() >= MAX_PLANS {
            made.clear();
        }
        made.entry(key).or_insert_with(make).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_those_of_the_policy_also_when_there_are_many() {
        let plans = Plans::default();
        let shape = ShapeSummary {
            domain_log2: 12,
            num_rows: 4_000,
            num_inputs: 2,
            num_aux: 3_900,
            evaluation: None,
        };
        let srs = SrsSummary::new([4_095, 3_900, 3_902, 2_000, 2_000]);
        let least = least_budget_bytes(&shape, &srs);
        assert_eq!(plans.least_budget_bytes(&shape, &srs), least);
        for _ in 0..2 {
            for more in 0..2 * MAX_PLANS as u64 {
                let budget_bytes = least - 512 + more;
                assert_eq!(plans.plan(&shape, &srs, budget_bytes), plan(&shape, &srs, budget_bytes));
            }
            let none = QuerySet::NONE;
            assert_eq!(
                plans.plan_with_resident(&shape, &srs, none, least),
                plan_with_resident(&shape, &srs, none, least)
            );
        }
        assert!(plans.made.borrow().len() <= MAX_PLANS);
    }
}
