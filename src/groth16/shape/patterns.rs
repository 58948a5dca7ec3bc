//! The distinct rows of a circuit.
//!
//! A circuit repeats itself: a gadget that is used a thousand times makes the same rows a thousand times, about other
//! variables. Seen from the newest variable of each row, its *anchor*, they are the same. So a row is kept once, its
//! columns as distances to the anchors, and how far the anchors lie from those of the row before.

/// The code of input 0, which is one in every circuit: the only column that is not relative.
pub(in crate::groth16) const ONE: u32 = u32::MAX;
/// Set in the code of an input other than 0; the rest is its distance to the input anchor. Without it a code is the
/// distance to the aux anchor.
pub(in crate::groth16) const INPUT: u32 = 1 << 31;

/// What a code stands for in one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::groth16) enum Variable {
    Input(u32),
    Aux(u32),
}

/// The highest aux variable of a row, and its highest input other than 0. A row without any has those of the row
/// before; before the first row both are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::groth16) struct Anchors {
    pub aux: u32,
    pub input: u32,
}

impl Anchors {
    #[inline(always)]
    pub fn variable(self, code: u32) -> Variable {
        match code {
            ONE => Variable::Input(0),
            _ if code & INPUT != 0 => Variable::Input(self.input - (code ^ INPUT)),
            _ => Variable::Aux(self.aux - code),
        }
    }

    /// Those of the next row, whose pattern this is.
    #[inline(always)]
    pub fn step(self, pattern: &Pattern) -> Self {
        Self {
            aux: self.aux.wrapping_add_signed(pattern.aux_step),
            input: self.input.wrapping_add_signed(pattern.input_step),
        }
    }

    /// As [`Self::step`]; `None` if an anchor would leave `0..2^31`.
    pub fn checked_step(self, pattern: &Pattern) -> Option<Self> {
        let step =
            |anchor: u32, step: i32| anchor.checked_add_signed(step).filter(|anchor| anchor & INPUT == 0);
        Some(Self { aux: step(self.aux, pattern.aux_step)?, input: step(self.input, pattern.input_step)? })
    }
}

/// One distinct row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::groth16) struct Pattern {
    /// Where its entries in A, B and C end; those in A begin where the pattern before it ends.
    pub ends: [u32; 3],
    /// From the row before's anchors to this one's.
    pub aux_step: i32,
    pub input_step: i32,
}

/// A pattern's entries in one matrix: `[num_terms]` each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::groth16) struct Terms<'a> {
    pub codes: &'a [u32],
    /// Indices into the shape's table of coefficients.
    pub coefficients: &'a [u16],
}

impl<'a> Terms<'a> {
    #[inline(always)]
    pub fn iter(self) -> impl Iterator<Item = (u32, u16)> + 'a {
        self.codes.iter().copied().zip(self.coefficients.iter().copied())
    }
}

/// All patterns of a circuit, numbered in the order of their first rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::groth16) struct PatternTable {
    /// `[num_patterns + 1]`: an empty one, so that each has one before it.
    patterns: Vec<Pattern>,
    codes: Vec<u32>,
    coefficients: Vec<u16>,
}

impl Default for PatternTable {
    fn default() -> Self {
        Self { patterns: vec![Pattern::default()], codes: Vec::new(), coefficients: Vec::new() }
    }
}

impl PatternTable {
    /// # Errors
    /// If the parts are no table: what of them.
    pub fn from_parts(
        mut patterns: Vec<Pattern>,
        codes: Vec<u32>,
        coefficients: Vec<u16>,
    ) -> Result<Self, &'static str> {
        patterns.insert(0, Pattern::default());
        let ends = patterns.iter().flat_map(|pattern| pattern.ends);
        if !ends.is_sorted() {
            return Err("ends of entries are not rising");
        }
        let end = patterns.last().map_or(0, |pattern| pattern.ends[2] as usize);
        if codes.len() != end || coefficients.len() != end {
            return Err("number of entries differs from the patterns'");
        }
        Ok(Self { patterns, codes, coefficients })
    }

    pub fn len(&self) -> usize {
        self.patterns.len() - 1
    }

    pub fn patterns(&self) -> &[Pattern] {
        &self.patterns[1..]
    }

    /// The codes of all patterns' entries.
    pub fn codes(&self) -> &[u32] {
        &self.codes
    }

    /// The coefficients of all patterns' entries.
    pub fn coefficients(&self) -> &[u16] {
        &self.coefficients
    }

    #[inline(always)]
    pub fn pattern(&self, id: u32) -> &Pattern {
        &self.patterns[id as usize + 1]
    }

    /// All its entries, those of A first.
    #[inline(always)]
    pub fn entries(&self, id: u32) -> Terms<'_> {
        self.terms(self.patterns[id as usize].ends[2], self.pattern(id).ends[2])
    }

    /// Its entries in A, B and C.
    #[inline(always)]
    pub fn row(&self, id: u32) -> [Terms<'_>; 3] {
        let [end_a, end_b, end_c] = self.pattern(id).ends;
        let start = self.patterns[id as usize].ends[2];
        [self.terms(start, end_a), self.terms(end_a, end_b), self.terms(end_b, end_c)]
    }

    #[inline(always)]
    fn terms(&self, start: u32, end: u32) -> Terms<'_> {
        let range = start as usize..end as usize;
        Terms { codes: &self.codes[range.clone()], coefficients: &self.coefficients[range] }
    }

    /// Appends a pattern; `lengths` of its entries in A, B and C. `None` if there would be 2^32 entries.
    pub fn push(
        &mut self,
        lengths: [usize; 3],
        steps: [i32; 2],
        codes: &[u32],
        coefficients: &[u16],
    ) -> Option<u32> {
        let mut end = self.codes.len();
        let mut ends = [0; 3];
        for (end_of, length) in ends.iter_mut().zip(lengths) {
            end += length;
            *end_of = u32::try_from(end).ok()?;
        }
        let id = u32::try_from(self.len()).ok()?;
        self.patterns.push(Pattern { ends, aux_step: steps[0], input_step: steps[1] });
        self.codes.extend_from_slice(codes);
        self.coefficients.extend_from_slice(coefficients);
        Some(id)
    }

    pub fn shrink_to_fit(&mut self) {
        self.patterns.shrink_to_fit();
        self.codes.shrink_to_fit();
        self.coefficients.shrink_to_fit();
    }

    pub fn num_bytes(&self) -> u64 {
        (size_of::<Pattern>() * self.patterns.len() + 4 * self.codes.len() + 2 * self.coefficients.len())
            as u64
    }
}
