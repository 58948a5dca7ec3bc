//! Where connections come from: socket files, TCP ports, sockets that systemd hands over.
//!
//! One daemon per socket file (B07): a file on which somebody answers is left alone and refused; one on which nobody does is
//! what a killed daemon left behind, and is replaced. A file that is no socket is never touched.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream as BlockingUnixStream;
use std::path::{Path, PathBuf};

use cuzk::config::{DaemonConfig, ListenAddress};
use tokio::net::{TcpListener, UnixListener};

use crate::failure::Failure;

/// A place to accept connections at.
#[derive(Debug)]
pub enum Listener {
    Unix { listener: UnixListener, path: PathBuf, file: Option<SocketFile> },
    Tcp { listener: TcpListener, address: String },
}

impl Listener {
    /// Our socket file, if there is one, for whoever knows when it is to go.
    pub fn take_file(&mut self) -> Option<SocketFile> {
        match self {
            Self::Unix { file, .. } => file.take(),
            Self::Tcp { .. } => None,
        }
    }

    /// As a client would write it.
    pub fn address(&self) -> String {
        match self {
            Self::Unix { path, .. } => format!("unix://{}", path.display()),
            Self::Tcp { address, .. } => address.clone(),
        }
    }
}

/// Our socket file: removed when this is dropped, unless another daemon has put its own there meanwhile.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = std::fs::symlink_metadata(&self.path).is_ok_and(|file| file.ino() == self.inode);
        if is_ours {
            // If it stays, the next daemon finds it stale.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// What can be told before anything is opened.
///
/// # Errors
/// What cannot be had.
pub fn check(config: &DaemonConfig) -> Result<(), Failure> {
    if config.listen.0.is_empty() {
        return Err(Failure::config("daemon.listen: is empty: name a unix:///path or a host:port"));
    }
    socket_group(config).map(drop)
}

/// Opens every address of the configuration; or takes the sockets that systemd opened, if it did.
///
/// # Errors
/// The address, and why it cannot be had.
pub async fn open(config: &DaemonConfig) -> Result<Vec<Listener>, Failure> {
    let handed_over = handed_over()?;
    if !handed_over.is_empty() {
        return Ok(handed_over);
    }
    let mut listeners = Vec::new();
    for address in &config.listen.0 {
        listeners.push(match address {
            ListenAddress::Unix(path) => open_unix(path, config)?,
            ListenAddress::Tcp(address) => open_tcp(address).await?,
        });
    }
    Ok(listeners)
}

async fn open_tcp(address: &str) -> Result<Listener, Failure> {
    let listener = TcpListener::bind(address).await.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => {
            Failure::in_use(format!("{address}: another process listens there: stop it, or use another port"))
        }
        _ => Failure::config(format!("daemon.listen: {address}: {error}")),
    })?;
    let address = listener.local_addr().map(|address| address.to_string());
    let address = address.map_err(|error| Failure::failed(format!("{error}")))?;
    Ok(Listener::Tcp { listener, address })
}

fn open_unix(path: &Path, config: &DaemonConfig) -> Result<Listener, Failure> {
    let refuse = |what: String| Failure::config(format!("daemon.listen: {}: {what}", path.display()));
    if let Some(folder) = path.parent().filter(|folder| !folder.exists()) {
        return Err(refuse(format!(
            "its folder {} is not there: make it, or listen elsewhere",
            folder.display()
        )));
    }
    // Two daemons that start at once look at the same stale file: one after the other. The lock goes with the process.
    let _turn = take_turn(path)?;
    remove_if_stale(path)?;
    // Made under another name and with its permissions before anybody can connect to it.
    let fresh = path.with_extension(format!("{}.new", std::process::id()));
    let _ = std::fs::remove_file(&fresh);
    let listener = UnixListener::bind(&fresh).map_err(|error| refuse(error.to_string()))?;
    let prepared = permit(&fresh, config).and_then(|()| {
        std::fs::rename(&fresh, path).map_err(|error| refuse(error.to_string()))?;
        std::fs::symlink_metadata(path).map_err(|error| refuse(error.to_string()))
    });
    let file = match prepared {
        Ok(metadata) => SocketFile { path: path.to_owned(), inode: metadata.ino() },
        Err(failure) => {
            let _ = std::fs::remove_file(&fresh);
            return Err(failure);
        }
    };
    Ok(Listener::Unix { listener, path: path.to_owned(), file: Some(file) })
}

/// Holds a lock on the socket's folder while the file is looked at and replaced.
fn take_turn(path: &Path) -> Result<OwnedFd, Failure> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let refuse = |error: io::Error| Failure::config(format!("daemon.listen: {}: {error}", folder.display()));
    let folder = OwnedFd::from(std::fs::File::open(folder).map_err(refuse)?);
    rustix::fs::flock(&folder, rustix::fs::FlockOperation::LockExclusive)
        .map_err(|error| refuse(error.into()))?;
    Ok(folder)
}

fn remove_if_stale(path: &Path) -> Result<(), Failure> {
    let refuse = |what: String| Failure::config(format!("daemon.listen: {}: {what}", path.display()));
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(refuse(error.to_string())),
    };
    if !metadata.file_type().is_socket() {
        return Err(refuse("is there and is no socket: it is left alone; listen elsewhere".to_owned()));
    }
    match BlockingUnixStream::connect(path) {
        Ok(_) => Err(Failure::in_use(format!(
            "{}: another daemon serves there: stop it, or listen elsewhere",
            path.display()
        ))),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            tracing::info!(path = %path.display(), "a socket file that nobody serves is replaced");
            std::fs::remove_file(path).map_err(|error| refuse(error.to_string()))
        }
        // A full backlog, or no permission: somebody may well serve there.
        Err(error) => Err(Failure::in_use(format!("{}: in use: {error}", path.display()))),
    }
}

fn permit(path: &Path, config: &DaemonConfig) -> Result<(), Failure> {
    let refuse = |key: &str, what: String| Failure::config(format!("daemon.{key}: {what}"));
    if let Some(group) = socket_group(config)? {
        std::os::unix::fs::chown(path, None, Some(group))
            .map_err(|error| refuse("socket_group", format!("{}: {error}", config.socket_group)))?;
    }
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(config.socket_mode.0))
        .map_err(|error| refuse("socket_mode", error.to_string()))
}

/// The group that the socket file is to have; `None`: the process's own.
fn socket_group(config: &DaemonConfig) -> Result<Option<u32>, Failure> {
    let name = &config.socket_group;
    if name.is_empty() {
        return Ok(None);
    }
    let unknown = || Failure::config(format!("daemon.socket_group: `{name}` is no group of this machine"));
    group_id(name).map(Some).ok_or_else(unknown)
}

/// A group's number, from its number or its name in the local file of groups.
fn group_id(group: &str) -> Option<u32> {
    if let Ok(number) = group.parse() {
        return Some(number);
    }
    let groups = std::fs::read_to_string("/etc/group").ok()?;
    let mut lines = groups.lines().map(|line| line.split(':'));
    lines.find_map(|mut fields| (fields.next()? == group).then(|| fields.nth(1)?.parse().ok())?)
}

/// The sockets that systemd opened for this process (`LISTEN_FDS`).
fn handed_over() -> Result<Vec<Listener>, Failure> {
    let failed = |error: io::Error| Failure::failed(format!("sockets of systemd: {error}"));
    let descriptors: Vec<i32> = sd_notify::listen_fds().map_err(failed)?.collect();
    descriptors.into_iter().map(|descriptor| adopt(own(descriptor).map_err(failed)?)).collect()
}

/// A descriptor of our own for one that we were started with. Adopting a bare number is what the language calls unsafe: it
/// could be anybody's. The kernel makes us another one for it instead.
fn own(descriptor: i32) -> io::Result<OwnedFd> {
    use rustix::process::{getpid, pidfd_getfd, pidfd_open, PidfdFlags, PidfdGetfdFlags};
    let own = pidfd_open(getpid(), PidfdFlags::empty())?;
    Ok(pidfd_getfd(own, descriptor, PidfdGetfdFlags::empty())?)
}

fn adopt(socket: OwnedFd) -> Result<Listener, Failure> {
    let failed = |error: io::Error| Failure::failed(format!("a socket of systemd: {error}"));
    let std_unix = std::os::unix::net::UnixListener::from(socket);
    let address = std_unix.local_addr();
    match address {
        Ok(address) if address.as_pathname().is_some() => {
            std_unix.set_nonblocking(true).map_err(failed)?;
            let path = address.as_pathname().expect("asked above").to_owned();
            let listener = UnixListener::from_std(std_unix).map_err(failed)?;
            // The file is systemd's.
            Ok(Listener::Unix { listener, path, file: None })
        }
        // No address of a file: it is one of the network.
        _ => {
            let std_tcp = std::net::TcpListener::from(OwnedFd::from(std_unix));
            std_tcp.set_nonblocking(true).map_err(failed)?;
            let listener = TcpListener::from_std(std_tcp).map_err(failed)?;
            let address = listener.local_addr().map_err(failed)?.to_string();
            Ok(Listener::Tcp { listener, address })
        }
    }
}
