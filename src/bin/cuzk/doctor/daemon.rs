//! The daemon's addresses: whether one answers there, or something else is in the way.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;

use cuzk::config::{Config, ListenAddress};

use super::finding::Finding;
use super::root::Root;

/// Where the packaged service has its socket, whatever the configuration says.
const SERVICE_SOCKET: &str = "/run/cuzk/cuzk.sock";

pub fn check(root: &Root, config: &Config) -> Vec<Finding> {
    let (socket, is_alive) = socket(root, config);
    let port = config.daemon.status_listen.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    let mut findings = vec![socket];
    findings.extend(port.map(|port| self::port(root, port, is_alive)));
    findings
}

fn socket(root: &Root, config: &Config) -> (Finding, bool) {
    let name = "daemon socket";
    let configured = config.daemon.listen.0.iter().filter_map(|address| match address {
        ListenAddress::Unix(path) => path.to_str(),
        ListenAddress::Tcp(_) => None,
    });
    let mut paths: Vec<&str> = configured.collect();
    if !paths.contains(&SERVICE_SOCKET) {
        paths.push(SERVICE_SOCKET);
    }
    let Some(path) = paths.iter().map(|path| root.join(path)).find(|path| path.exists()) else {
        return (Finding::fine(name, format!("{}: no daemon is there", paths.join(", "))), false);
    };
    let shown = path.display();
    match UnixStream::connect(&path) {
        Ok(_) => (Finding::fine(name, format!("{shown}: one answers")), true),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let advice = "become a member of the socket's group: usermod -aG cuzk USER, and log in anew";
            (Finding::warn(name, format!("{shown}: this user may not speak to it"), advice), true)
        }
        Err(error) => {
            let advice =
                "nobody listens at it: start the daemon (systemctl start cuzk-daemon), which replaces it";
            (Finding::warn(name, format!("{shown}: {error}"), advice), false)
        }
    }
}

fn port(root: &Root, port: u16, has_daemon: bool) -> Finding {
    let name = "daemon port";
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| root.read(table));
    if tables.iter().all(Option::is_none) {
        return Finding::fine(name, format!("{port}: cannot be told without /proc"));
    }
    let is_taken = tables.iter().flatten().any(|table| is_listening(table, port));
    match (is_taken, has_daemon) {
        (false, _) => Finding::fine(name, format!("{port}: free")),
        (true, true) => Finding::fine(name, format!("{port}: taken, as by a daemon")),
        (true, false) => {
            let advice = "if that is no daemon, give the daemon another one: [daemon] status_listen";
            Finding::warn(name, format!("{port}: taken, and no daemon is at the socket"), advice)
        }
    }
}

/// A table of sockets as proc(5) has it: local address and port in hexadecimal, state 0A listening.
fn is_listening(table: &str, port: u16) -> bool {
    table.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, state) = (fields.next(), fields.nth(1));
        let is_port = local
            .and_then(|local| local.rsplit_once(':'))
            .is_some_and(|(_, has)| u16::from_str_radix(has, 16).is_ok_and(|has| has == port));
        is_port && state == Some("0A")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_are_found_by_port() {
        let table =
            "  sl  local_address rem_address   st tx_queue\n   0: 0100007F:265D 00000000:0000 0A 0\n   1: \
                     0100007F:265E 0100007F:1234 01 0\n";
        assert!(is_listening(table, 9821));
        assert!(!is_listening(table, 9822), "connected, not listening");
        assert!(!is_listening("", 9821));
    }
}
