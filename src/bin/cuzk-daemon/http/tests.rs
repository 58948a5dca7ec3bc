//! The routes over a real socket, in front of a real engine on simulated devices and a simulated host, in real time.

mod browser;
mod documents;
mod rig;
mod routes;
