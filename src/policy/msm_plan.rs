pub const MIN_WINDOW_BITS: u32 = 4;
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    G1,
    G2,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsmPlan {
    pub group: Group,
    pub chunk_points: u64,
    pub window_bits: u32,
}
impl MsmPlan {
    pub fn bytes(&self) -> u64 {
        let w = u64::from(255u32.div_ceil(self.window_bits));
        (w * 192 << (self.window_bits - 1)) + self.chunk_points * 4 * w
    }
}
pub fn best_window_bits(n: u64) -> u32 {
    n.max(1).ilog2().saturating_sub(3).clamp(4, 22)
}
