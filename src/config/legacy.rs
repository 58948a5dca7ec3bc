//! Keys of configuration files that were written for another engine with this interface: those that mean the same here are
//! read under their new name, those that mean nothing here are named in a warning.

/// What becomes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Legacy {
    /// The same under another name of the same section.
    Renamed(&'static str),
    /// Without effect; why, or what to use.
    Ignored(&'static str),
}

const KEYS: &[(&str, &str, Legacy)] = {
    use Legacy::{Ignored, Renamed};
    const MEMORY: &str = "memory is planned by [memory] budget alone";
    const BATCH: &str = "batches are made by [scheduler] batch_partitions and batch_limit_s";
    const PIPELINE: &str = "witnesses are made ahead as far as [memory] budget allows";
    &[
        ("memory", "total_budget", Renamed("budget")),
        ("memory", "safety_margin", Ignored("\"auto\" leaves a tenth of the host's memory")),
        ("memory", "eviction_min_idle", Ignored("see [srs] idle_limit_s")),
        ("memory", "pinned_budget", Ignored(MEMORY)),
        ("memory", "working_memory_budget", Ignored(MEMORY)),
        ("gpus", "gpu_threads", Ignored("the host does no part of a GPU's proof")),
        ("scheduler", "max_batch_size", Ignored(BATCH)),
        ("scheduler", "max_batch_wait_ms", Ignored(BATCH)),
        ("scheduler", "sort_by_type", Ignored(BATCH)),
        ("synthesis", "partition_workers", Ignored("see [synthesis] threads")),
        ("pipeline", "enabled", Ignored(PIPELINE)),
        ("pipeline", "synthesis_lookahead", Ignored(PIPELINE)),
        ("pipeline", "synthesis_concurrency", Ignored(PIPELINE)),
        ("pipeline", "slot_size", Ignored(PIPELINE)),
        ("pipeline", "max_gpu_queue_depth", Ignored(PIPELINE)),
        ("srs", "param_cache", Renamed("params_dir")),
        ("srs", "preload", Ignored("see [srs] warmup")),
    ]
};

/// What becomes of `[section] key`; `None`: it is no such key.
pub(super) fn legacy(section: &str, key: &str) -> Option<Legacy> {
    KEYS.iter().find(|(of, name, _)| *of == section && *name == key).map(|(_, _, legacy)| *legacy)
}

/// Sections of which nothing is left.
pub(super) fn is_legacy_section(section: &str) -> bool {
    section == "pipeline"
}
