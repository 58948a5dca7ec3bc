//! The demo's inputs: one job of each kind, of 2 KiB sectors.

/// One job with its files.
pub struct Example {
    pub title: &'static str,
    pub folder: &'static str,
    pub files: &'static [(&'static str, &'static [u8])],
    /// Takes a minute or more.
    pub is_large: bool,
}

macro_rules! data {
    ($folder:literal, $($file:literal),+) => {
        &[$((
            $file,
            include_bytes!(concat!("../../../../tests/data/filecoin/", $folder, "/", $file)).as_slice(),
        )),+]
    };
}

pub const EXAMPLES: [Example; 4] = [
    Example {
        title: "WindowPoSt: two sectors are still stored",
        folder: "window-2k",
        files: data!("window-2k/full-partition", "manifest.json", "vanilla-0.bin", "vanilla-1.bin"),
        is_large: false,
    },
    Example {
        title: "WinningPoSt: the sector that wins a block is still stored",
        folder: "winning-2k",
        files: data!("winning-2k/sector-1", "manifest.json", "vanilla-0.bin"),
        is_large: false,
    },
    Example {
        title: "SnapDeals: a sealed sector got new data",
        folder: "snap-2k",
        files: data!("snap-2k/sector-1", "manifest.json", "vanilla-0.bin"),
        is_large: true,
    },
    Example {
        title: "PoRep: a sector was sealed",
        folder: "porep-2k",
        files: data!("porep-2k/sector-1", "manifest.json", "c1-wrapped.json"),
        is_large: true,
    },
];
