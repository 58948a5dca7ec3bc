//! Configuration files: what is accepted has passed every check of its values.
#![no_main]

use cuzk::config::Config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(config) = Config::from_toml(text, "fuzz.toml") {
        config.validate().expect("an accepted configuration is valid");
    }
});
