//! Circuits on recorded jobs: decoding, public inputs, witnesses, Filecoin's own verification; and what is refused.

mod bad_input;
mod bad_porep;
mod bad_post;
mod bad_snap;
mod catalogue;
mod common;
mod counted;
mod fixtures;
mod native;
mod request_file;
mod synthetic;
