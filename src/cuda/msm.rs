use super::*;
use crate::policy::msm_plan::MsmPlan;
use blst::*;
pub trait CurvePoint: DeviceData {
    type Projective;
}
impl CurvePoint for blst_p1_affine {
    type Projective = blstrs::G1Projective;
}
impl CurvePoint for blst_p2_affine {
    type Projective = blstrs::G2Projective;
}
pub struct MsmKernels;
pub struct Scalars<'b> {
    pub values: DeviceSlice<'b, blst_fr>,
    pub index: Option<DeviceSlice<'b, u32>>,
}
pub struct MsmSum<P>(P);
pub struct WindowSums<P>(P);
impl MsmKernels {
    pub fn load(_: &Context) -> Result<Self, CudaError> {
        unimplemented!()
    }
    pub fn begin<P: CurvePoint>(
        &self,
        _: &Stream,
        _: &Reservation,
        _: &MsmPlan,
    ) -> Result<MsmSum<P>, CudaError> {
        unimplemented!()
    }
}
impl<P: CurvePoint> MsmSum<P> {
    pub fn add(&mut self, _: DeviceSlice<'_, P>, _: Scalars<'_>) -> Result<(), CudaError> {
        unimplemented!()
    }
    pub fn finish(self) -> Result<WindowSums<P>, CudaError> {
        unimplemented!()
    }
}
impl<P: CurvePoint> WindowSums<P> {
    pub fn total(self) -> Result<P::Projective, CudaError> {
        unimplemented!()
    }
}
