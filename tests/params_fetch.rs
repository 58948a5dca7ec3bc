//! Fetching parameter files from servers that cut, stall, lie, redirect and refuse, and processes that are killed at it.
#![cfg(feature = "fetch")]

#[path = "params_fetch/entrypoint.rs"]
mod entrypoint;
#[path = "params_fetch/program.rs"]
mod program;
#[path = "params_fetch/secure.rs"]
mod secure;
#[path = "params_fetch/server.rs"]
mod server;

use std::fs;
use std::sync::Mutex;
use std::time::Duration;

use cuzk::circuits::CircuitSpec;
use cuzk::error::ParamsError;
use cuzk::params::fetch::{check_space, fetch, FetchOptions, Fetched, Mirror, Phase, Stop, Watcher};
use cuzk::params::{partial_path, Manifest, VerifiedFiles, Wanted};
use server::{Request, Server};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_millis(300);

/// Bytes that are no repetition, so that a shift by any amount shows.
fn content(num_bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..num_bytes).map(|_| next()).collect()
}

/// A manifest of the two files of WindowPoSt 2 KiB, with these bytes.
fn manifest(params: &[u8], vk: &[u8]) -> String {
    let spec = spec();
    let digest = |bytes: &[u8]| blake2b_simd::blake2b(bytes).to_hex()[..32].to_owned();
    format!(
        r#"{{"{}": {{"cid": "QmParams", "digest": "{}", "sector_size": 2048}},
            "{}": {{"cid": "QmVk", "digest": "{}", "sector_size": 2048}}}}"#,
        spec.params_file(),
        digest(params),
        spec.vk_file(),
        digest(vk)
    )
}

fn spec() -> CircuitSpec {
    CircuitSpec::by_id("wpost-2k").unwrap()
}

/// The one file that most tests fetch.
struct Case {
    dir: TempDir,
    bytes: Vec<u8>,
    wanted: Wanted,
}

#[derive(Default)]
struct Heard {
    setbacks: Mutex<Vec<String>>,
    digested: Mutex<u64>,
}

impl Watcher for Heard {
    fn progress(&self, _: usize, phase: Phase, done: u64, _: Option<u64>) {
        if phase == Phase::Digesting {
            *self.digested.lock().unwrap() = done;
        }
    }

    fn setback(&self, _: usize, reason: &str) {
        self.setbacks.lock().unwrap().push(reason.to_owned());
    }

    fn ended(&self, _: usize, _: &Result<Fetched, ParamsError>) {}
}

impl Case {
    fn new() -> Self {
        let bytes = content(1_500_000, 7);
        let [_, wanted] = Manifest::from_json(&manifest(&bytes, b"vk")).unwrap().files_of(&spec()).unwrap();
        Self { dir: tempfile::tempdir().unwrap(), bytes, wanted }
    }

    fn options(&self) -> FetchOptions {
        FetchOptions {
            stall_limit: LIMIT,
            max_fruitless_rounds: 3,
            wait: Duration::from_millis(1),
            wait_max: Duration::from_millis(20),
            ..FetchOptions::new(self.dir.path().to_owned())
        }
    }

    fn fetch(&self, urls: &[&str]) -> (Result<Fetched, ParamsError>, Vec<String>) {
        self.fetch_with(urls, &self.options())
    }

    fn fetch_with(
        &self,
        urls: &[&str],
        options: &FetchOptions,
    ) -> (Result<Fetched, ParamsError>, Vec<String>) {
        let mirrors: Vec<Mirror> = urls.iter().map(|url| Mirror::new(url, LIMIT).unwrap()).collect();
        let (_handle, stop) = Stop::new();
        let heard = Heard::default();
        let wanted = std::slice::from_ref(&self.wanted);
        let outcome = fetch(wanted, &mirrors, options, &stop, &heard).remove(0);
        if outcome.is_err() {
            assert!(!self.path().exists() || fs::read(self.path()).unwrap() != self.bytes);
        }
        (outcome, heard.setbacks.into_inner().unwrap())
    }

    fn path(&self) -> std::path::PathBuf {
        self.dir.path().join(&self.wanted.file.name)
    }

    fn partial(&self) -> std::path::PathBuf {
        partial_path(self.dir.path(), &self.wanted.file.name)
    }

    /// The file is there, whole, and nothing beside it.
    #[track_caller]
    fn assert_whole(&self, outcome: Result<Fetched, ParamsError>) -> Fetched {
        let fetched = outcome.unwrap_or_else(|error| panic!("{error}"));
        assert!(fs::read(self.path()).unwrap() == self.bytes, "other bytes under the final name");
        assert_eq!(fetched.num_bytes, self.bytes.len() as u64);
        let names: Vec<_> =
            fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), 1, "{names:?}");
        fetched
    }

    /// A server with this file that answers the first requests in other ways.
    fn server(&self, odd: impl Fn(usize, &Request, &[u8]) -> bool + Send + Sync + 'static) -> Server {
        let bytes = self.bytes.clone();
        Server::start(move |number, request| {
            if !odd(number, request, &bytes) {
                request.serve(&bytes);
            }
        })
    }
}

#[test]
fn a_gateway_has_a_file_under_its_content_id() {
    let case = Case::new();
    let server = case.server(|_, _, _| false);
    let (outcome, setbacks) = case.fetch(&[&server.url()]);
    let fetched = case.assert_whole(outcome);
    assert_eq!((fetched.fetched_bytes, fetched.resumed_bytes), (1_500_000, 0));
    assert!(setbacks.is_empty(), "{setbacks:?}");
    assert_eq!(server.paths(), ["/ipfs/QmParams"]);

    // It is there now: nothing is asked.
    let (outcome, _) = case.fetch(&[&server.url()]);
    assert_eq!(case.assert_whole(outcome).fetched_bytes, 0);
    assert_eq!(server.paths().len(), 1);
}

#[test]
fn a_mirror_may_have_files_under_their_names() {
    let case = Case::new();
    let server = case.server(|_, _, _| false);
    let (outcome, _) = case.fetch(&[&format!("{}/params/{{name}}", server.url())]);
    case.assert_whole(outcome);
    assert_eq!(server.paths(), [format!("/params/{}", spec().params_file())]);
}

#[test]
fn a_connection_that_is_cut_is_gone_on_with() {
    let case = Case::new();
    let server = case.server(|number, request, bytes| {
        let is_cut = number < 3;
        if is_cut {
            request.serve_cut(bytes, 300_000);
        }
        is_cut
    });
    let (outcome, setbacks) = case.fetch(&[&server.url()]);
    let fetched = case.assert_whole(outcome);
    assert_eq!(fetched.fetched_bytes, 1_500_000, "nothing came twice");
    assert_eq!(server.ranges(), [None, Some(300_000), Some(600_000), Some(900_000)]);
    assert_eq!(setbacks.len(), 3);
    assert!(setbacks[0].contains("after 300000"), "{setbacks:?}");
}

#[test]
fn a_stalled_connection_is_given_up_and_gone_on_with() {
    let case = Case::new();
    let server = case.server(|number, request, bytes| {
        if number == 0 {
            request.serve_stalled(bytes, 500_000);
        }
        number == 0
    });
    let (outcome, setbacks) = case.fetch(&[&server.url()]);
    case.assert_whole(outcome);
    assert_eq!(server.ranges(), [None, Some(500_000)]);
    assert_eq!(setbacks.len(), 1, "{setbacks:?}");
}

#[test]
fn a_server_that_ignores_ranges_still_ends() {
    let case = Case::new();
    let server = case.server(|number, request, bytes| {
        match number {
            0 => request.serve_cut(bytes, 400_000),
            _ => request.serve_whole(bytes),
        }
        true
    });
    let (outcome, _) = case.fetch(&[&server.url()]);
    assert_eq!(case.assert_whole(outcome).fetched_bytes, 1_500_000);
    assert_eq!(server.ranges(), [None, Some(400_000)]);
}

#[test]
fn a_range_that_begins_elsewhere_is_refused_or_cut_to_fit() {
    let case = Case::new();
    let server = case.server(|number, request, bytes| {
        match number {
            0 => request.serve_cut(bytes, 400_000),
            1 => request.serve_from(bytes, 500_000, bytes.len()),
            _ => request.serve_from(bytes, 399_000, bytes.len()),
        }
        true
    });
    let (outcome, setbacks) = case.fetch(&[&server.url()]);
    case.assert_whole(outcome);
    assert!(setbacks[1].contains("another range"), "{setbacks:?}");
}

#[test]
fn lengths_that_are_lies_do_not_matter() {
    // Longer than the file: the right digest ends it.
    let case = Case::new();
    let server = case.server(|_, request, bytes| {
        request.serve_as(bytes, bytes.len() + 1000);
        true
    });
    let (outcome, _) = case.fetch(&[&server.url()]);
    case.assert_whole(outcome);

    // Shorter: what came is another file; the next mirror has it.
    let case = Case::new();
    let short = case.server(|_, request, bytes| {
        request.serve_as(&bytes[..1000], 1000);
        true
    });
    let good = case.server(|_, _, _| false);
    let (outcome, setbacks) = case.fetch(&[&short.url(), &good.url()]);
    assert_eq!(case.assert_whole(outcome).mirror.as_deref(), Some(&*good.url()));
    assert!(setbacks[0].contains("1000 B of another digest"), "{setbacks:?}");

    // More than any disk has.
    let case = Case::new();
    let endless = case.server(|_, request, bytes| {
        request.serve_as(bytes, usize::MAX / 2);
        true
    });
    let (outcome, _) = case.fetch(&[&endless.url()]);
    assert!(matches!(outcome, Err(ParamsError::Space { .. })), "{outcome:?}");
}

#[test]
fn wrong_bytes_never_get_the_name_and_are_asked_for_elsewhere() {
    let mut case = Case::new();
    case.wanted.expected_bytes = Some(1_500_000);
    let wrong = case.server(|_, request, bytes| {
        let mut bytes = bytes.to_vec();
        bytes[1_000_000] ^= 1;
        request.serve(&bytes);
        true
    });
    let (outcome, setbacks) = case.fetch(&[&wrong.url()]);
    match outcome {
        Err(ParamsError::Unavailable { reasons, .. }) => {
            assert!(reasons[0].contains("another digest"), "{reasons:?}")
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(setbacks.len(), 1, "it is not asked again: {setbacks:?}");
    assert_eq!(fs::metadata(case.partial()).unwrap().len(), 0, "what is wrong is thrown away");

    // Far more than is expected ends before it is stored.
    let large = case.server(|_, request, bytes| {
        request.serve_chunked(&content(bytes.len() * 5, 9));
        true
    });
    let good = case.server(|_, _, _| false);
    let (outcome, setbacks) = case.fetch(&[&wrong.url(), &large.url(), &good.url()]);
    case.assert_whole(outcome);
    assert!(setbacks[1].contains("sends more than 3000000 B"), "{setbacks:?}");
}

/// A power cut can leave a part whose end is zeros: it is found at the end, and only then.
#[test]
fn a_damaged_part_is_fetched_anew_from_the_same_mirror() {
    let case = Case::new();
    let mut part = case.bytes[..700_000].to_vec();
    part[650_000..].fill(0);
    fs::write(case.partial(), part).unwrap();
    let server = case.server(|_, _, _| false);
    let (outcome, setbacks) = case.fetch(&[&server.url()]);
    let fetched = case.assert_whole(outcome);
    assert_eq!(server.ranges(), [Some(700_000), None]);
    assert_eq!((fetched.resumed_bytes, fetched.fetched_bytes), (700_000, 800_000 + 1_500_000));
    assert_eq!(setbacks.len(), 1, "{setbacks:?}");

    // A part that is longer than the file.
    let case = Case::new();
    fs::write(case.partial(), vec![0; 2_000_000]).unwrap();
    let (outcome, _) = case.fetch(&[&server.url()]);
    case.assert_whole(outcome);
}

#[test]
fn a_part_that_is_the_whole_file_needs_no_mirror() {
    let case = Case::new();
    fs::write(case.partial(), &case.bytes).unwrap();
    let server = case.server(|_, _, _| panic!("nothing is to be asked"));
    let (outcome, _) = case.fetch(&[&server.url()]);
    assert_eq!(case.assert_whole(outcome).resumed_bytes, 1_500_000);
    assert!(server.paths().is_empty());
}

/// One cuts every time, the other has a wrong end: neither is asked for ever.
#[test]
fn mirrors_that_only_together_are_wrong_are_given_up() {
    let case = Case::new();
    let cuts = case.server(|_, request, bytes| {
        request.serve_cut(bytes, 200_000);
        true
    });
    let wrong = case.server(|_, request, bytes| {
        let mut bytes = bytes.to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        request.serve(&bytes);
        true
    });
    let (outcome, setbacks) = case.fetch(&[&cuts.url(), &wrong.url()]);
    // With the wrong one gone, the other gives the rest bit by bit.
    case.assert_whole(outcome);
    let num_wrong = setbacks.iter().filter(|reason| reason.contains("another digest")).count();
    assert_eq!(num_wrong, 2, "{setbacks:?}");
}

#[test]
fn redirects_are_followed_and_loops_end() {
    let case = Case::new();
    let server = case.server(|_, request, _| {
        let is_first = request.path == "/ipfs/QmParams";
        if is_first {
            request.redirect("/elsewhere");
        }
        is_first
    });
    let (outcome, _) = case.fetch(&[&server.url()]);
    case.assert_whole(outcome);
    assert_eq!(server.paths(), ["/ipfs/QmParams", "/elsewhere"]);

    let case = Case::new();
    let circle = case.server(|_, request, _| {
        request.redirect(&request.path);
        true
    });
    let (outcome, _) = case.fetch(&[&circle.url()]);
    match outcome {
        Err(ParamsError::Unavailable { reasons, .. }) => assert!(reasons[0].contains("redirects for ever")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn refusals_that_pass_are_tried_again_and_others_are_not() {
    let case = Case::new();
    let server = case.server(|number, request, _| {
        match number {
            0 => request.refuse("429 Too Many Requests", "Retry-After: 0\r\n"),
            1 => request.refuse("500 Internal Server Error", ""),
            2 => request.refuse("503 Service Unavailable", "Retry-After: Wed, 21 Oct 2026 07:28:00 GMT\r\n"),
            _ => return false,
        }
        true
    });
    let options = FetchOptions { max_fruitless_rounds: 4, ..case.options() };
    let (outcome, setbacks) = case.fetch_with(&[&server.url()], &options);
    case.assert_whole(outcome);
    assert_eq!(setbacks.len(), 3);
    assert!(setbacks[0].contains("429") && setbacks[1].contains("500"), "{setbacks:?}");

    let case = Case::new();
    let missing = case.server(|_, request, _| {
        request.refuse("404 Not Found", "");
        true
    });
    let failing = case.server(|_, request, _| {
        request.refuse("502 Bad Gateway", "");
        true
    });
    let (outcome, _) = case.fetch(&[&missing.url(), &failing.url()]);
    match outcome {
        Err(ParamsError::Unavailable { reasons, .. }) => assert_eq!(reasons.len(), 2, "{reasons:?}"),
        other => panic!("{other:?}"),
    }
    assert_eq!((missing.paths().len(), failing.paths().len()), (1, 3));
}

#[test]
fn nobody_listening_is_a_failure_to_try_again() {
    let case = Case::new();
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (outcome, _) = case.fetch(&[&format!("http://{address}")]);
    let error = outcome.unwrap_err();
    assert!(matches!(error, ParamsError::Unavailable { .. }), "{error}");
    assert_eq!(error.class().as_str(), "retry");
}

#[test]
fn a_folder_is_a_mirror_too() {
    let case = Case::new();
    let source = tempfile::tempdir().unwrap();
    fs::write(source.path().join(&case.wanted.file.name), &case.bytes).unwrap();
    fs::write(case.partial(), &case.bytes[..100]).unwrap();
    let (outcome, _) = case.fetch(&[&format!("file://{}", source.path().display())]);
    assert_eq!(case.assert_whole(outcome).resumed_bytes, 100);

    let case = Case::new();
    let (outcome, _) = case.fetch(&["file:///nonexistent"]);
    assert!(matches!(outcome, Err(ParamsError::Unavailable { .. })));
}

#[test]
fn another_file_under_the_name_is_kept_unless_forced() {
    let case = Case::new();
    fs::write(case.path(), "somebody's own").unwrap();
    let server = case.server(|_, _, _| false);
    let (outcome, _) = case.fetch(&[&server.url()]);
    assert!(matches!(outcome, Err(ParamsError::Wrong { .. })), "{outcome:?}");
    assert_eq!(fs::read(case.path()).unwrap(), b"somebody's own");
    assert!(server.paths().is_empty());
    let forced = FetchOptions { replace_wrong: true, ..case.options() };
    let (outcome, _) = case.fetch_with(&[&server.url()], &forced);
    case.assert_whole(outcome);
}

#[test]
fn what_was_verified_is_not_read_again_until_it_changes() {
    let case = Case::new();
    let records = tempfile::tempdir().unwrap();
    let verified = Some(VerifiedFiles::in_dir(records.path().to_owned()));
    let options = FetchOptions { verified, ..case.options() };
    let server = case.server(|_, _, _| false);
    case.assert_whole(case.fetch_with(&[&server.url()], &options).0);
    let digested = || {
        let mirrors = [Mirror::new(&server.url(), LIMIT).unwrap()];
        let (_handle, stop) = Stop::new();
        let heard = Heard::default();
        let wanted = std::slice::from_ref(&case.wanted);
        let outcome = fetch(wanted, &mirrors, &options, &stop, &heard).remove(0);
        (outcome, heard.digested.into_inner().unwrap())
    };
    let (outcome, bytes) = digested();
    assert_eq!((outcome.unwrap().fetched_bytes, bytes), (0, 0));
    let mut bytes = case.bytes.clone();
    bytes[0] ^= 1;
    fs::write(case.path(), bytes).unwrap();
    let (outcome, _) = digested();
    assert!(matches!(outcome, Err(ParamsError::Wrong { .. })), "{outcome:?}");
}

#[test]
fn files_come_side_by_side_and_one_failure_is_ones_own() {
    let (params, vk) = (content(400_000, 1), content(500, 2));
    let wanted = Manifest::from_json(&manifest(&params, &vk)).unwrap().files_of(&spec()).unwrap();
    let both_are_asked = std::sync::Barrier::new(2);
    let bytes = params.clone();
    let server = Server::start(move |_, request| {
        // Nobody is answered before both have asked.
        both_are_asked.wait();
        if request.path.ends_with("QmParams") {
            request.serve(&bytes);
        } else {
            request.refuse("404 Not Found", "");
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let options = FetchOptions { num_parallel: 2, ..FetchOptions::new(dir.path().to_owned()) };
    let mirrors = [Mirror::new(&server.url(), Duration::from_secs(30)).unwrap()];
    let (_handle, stop) = Stop::new();
    let outcomes = fetch(&wanted, &mirrors, &options, &stop, &Heard::default());
    assert!(matches!(outcomes[0], Err(ParamsError::Unavailable { .. })), "{outcomes:?}");
    assert_eq!(fs::read(&outcomes[1].as_ref().unwrap().path).unwrap(), params);
}

#[test]
fn a_stop_ends_a_wait_at_once_and_keeps_what_came() {
    let case = Case::new();
    let server = case.server(|_, request, bytes| {
        request.serve_cut(bytes, 300_000);
        true
    });
    // A wait that no test would see the end of.
    let options = FetchOptions {
        wait: Duration::from_secs(3600),
        wait_max: Duration::from_secs(3600),
        ..case.options()
    };
    struct StopAtSetback(Mutex<Option<cuzk::params::fetch::StopHandle>>);
    impl Watcher for StopAtSetback {
        fn progress(&self, _: usize, _: Phase, _: u64, _: Option<u64>) {}
        fn setback(&self, _: usize, _: &str) {
            drop(self.0.lock().unwrap().take());
        }
        fn ended(&self, _: usize, _: &Result<Fetched, ParamsError>) {}
    }
    let (handle, stop) = Stop::new();
    let watcher = StopAtSetback(Mutex::new(Some(handle)));
    let mirrors = [Mirror::new(&server.url(), LIMIT).unwrap()];
    let outcome = fetch(std::slice::from_ref(&case.wanted), &mirrors, &options, &stop, &watcher).remove(0);
    assert!(matches!(outcome, Err(ParamsError::Stopped)), "{outcome:?}");
    assert_eq!(fs::read(case.partial()).unwrap(), case.bytes[..300_000]);
}

#[test]
fn room_is_asked_for_before_anything_is_fetched() {
    let dir = tempfile::tempdir().unwrap();
    let mut case = Case::new();
    check_space(dir.path(), std::slice::from_ref(&case.wanted)).unwrap();
    case.wanted.expected_bytes = Some(u64::MAX / 2);
    match check_space(dir.path(), std::slice::from_ref(&case.wanted)) {
        Err(ParamsError::Space { needs_bytes, free_bytes, .. }) => assert!(needs_bytes > free_bytes),
        other => panic!("{other:?}"),
    }
    // What is there already needs no room.
    fs::write(dir.path().join(&case.wanted.file.name), "x").unwrap();
    check_space(dir.path(), std::slice::from_ref(&case.wanted)).unwrap();
}
