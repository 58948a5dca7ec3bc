//! The programs that speak to a daemon, as a user and a script meet them: real ones, with a real `cuzk-daemon` on
//! simulated devices.

#![cfg(feature = "daemon")]

#[path = "client/bench.rs"]
mod bench;
#[path = "client/commands.rs"]
mod commands;
#[path = "client/manual.rs"]
mod manual;
#[path = "client/rig.rs"]
mod rig;
#[path = "client/security.rs"]
mod security;
#[path = "client/terminal.rs"]
mod terminal;
#[path = "client/top.rs"]
mod top;
