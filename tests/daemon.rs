//! The daemon as its callers and its operator meet it: the built program, its sockets, signals and exit codes.
#![cfg(feature = "daemon")]

#[path = "daemon/calls.rs"]
mod calls;
#[path = "common/certificates.rs"]
mod certificates;
#[path = "daemon/ends.rs"]
mod ends;
#[path = "daemon/hostile.rs"]
mod hostile;
#[path = "daemon/limits.rs"]
mod limits;
#[path = "daemon/logs.rs"]
mod logs;
#[path = "daemon/requests.rs"]
mod requests;
#[path = "daemon/restarts.rs"]
mod restarts;
#[path = "daemon/rig.rs"]
mod rig;
#[path = "daemon/security.rs"]
mod security;
#[path = "daemon/shapes.rs"]
mod shapes;
#[path = "daemon/starts.rs"]
mod starts;
#[path = "daemon/systemd.rs"]
mod systemd;
#[cfg(feature = "otlp")]
#[path = "daemon/traces.rs"]
mod traces;
