//! The programs that speak to a daemon, as a user and a script meet them: real ones, with a real `cuzk-daemon` on
//! simulated devices.

#![cfg(feature = "daemon")]

#[path = "client/bench.rs"]
mod bench;
#[path = "common/certificates.rs"]
mod certificates;
#[path = "client/commands.rs"]
mod commands;
#[path = "common/done.rs"]
mod done;
#[path = "client/manual.rs"]
mod manual;
#[path = "client/rig.rs"]
mod rig;
#[path = "client/security.rs"]
mod security;
#[path = "client/terminal.rs"]
#[allow(dead_code, reason = "the test of `cuzk prove` on a terminal uses the rest")]
mod terminal;
#[path = "client/top.rs"]
mod top;
