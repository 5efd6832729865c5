//! Fuzzes the dispatcher over the model file system with boundary values and mutated requests: nothing panics, loops or
//! replies beyond its limit.
//!
//! The mutated messages are valid ones with a few bytes changed, so that they get past the header;
//! `TIDEGATE_FUZZ_REQUESTS` sets their number, `TIDEGATE_SEED` replays.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use testkit::MemFs;
use testkit::prng::Prng;
use vfs::{FileSystem, FsError, Ino, NewNode, OpenFlags};
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{InHeader, OpenIn, OpenOut, ReadIn, ReleaseIn, SetxattrIn, opcode};
use crate::caching::Caching;
use crate::config::DirectIo;
use crate::counters::Counters;
use crate::dispatch::{Answer, Dispatcher};
use crate::error_log::ErrorLog;
use crate::inode_states::InodeStates;
use crate::mount_sync::MountSync;
use crate::reply::Trust;
use crate::request::Request;
use crate::write::SyncedByKernel;

/// The largest reply a request may ask for here; the kernel's buffers bound those of real requests.
const REPLY_BYTES_MAX: u32 = 1 << 20;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

/// A dispatcher over a model with one open file, `name`, and that file's inode and handle.
fn dispatcher(file_system: MemFs) -> (Dispatcher, u64, u64) {
    let caller = vfs::Caller {
        uid: 0,
        gid: 0,
        pid: 1,
    };
    let node = NewNode {
        mode: libc::S_IFREG | 0o644,
        umask: 0,
        rdev: 0,
    };
    let (entry, opened) = file_system
        .create(&caller, Ino::ROOT, b"name", node, OpenFlags(libc::O_RDWR))
        .expect("the model is empty");
    let dispatcher = Dispatcher {
        file_system: Arc::new(file_system),
        caching: Arc::new(Caching::new(
            Trust {
                attr: Duration::ZERO,
                entry: Duration::ZERO,
            },
            false,
        )),
        direct_io: DirectIo::Off,
        opens_by_kernel: false,
        writeback: false,
        mount_sync: MountSync::All,
        synced_by_kernel: SyncedByKernel::new(u32::MAX, DirectIo::Off),
        kernel_checks_ioctls: false,
        inodes: InodeStates::new(None, false),
        counters: Counters::new(),
        errors: ErrorLog::new(Box::new(|_| {})),
        forget_attributes: Box::new(|_| {}),
        stats_document: Box::new(Vec::new),
        in_flight: AtomicUsize::new(0),
    };
    (dispatcher, entry.ino.0, opened.handle.0)
}

/// A message with mostly plausible fields: small numbers, known inodes and handles, names that exist.
fn message(random: &mut Prng, ino: u64, handle: u64) -> Vec<u8> {
    let number = u32::try_from(random.below(56)).expect("small");
    let header = InHeader {
        opcode: number,
        unique: random.next_u64(),
        nodeid: *random.pick(&[1, 1, ino, ino, 7, u64::MAX]),
        uid: u32::try_from(random.below(3)).expect("small"),
        total_extlen: if random.chance(2) { 3 } else { 0 },
        ..InHeader::default()
    };
    let mut body = Vec::new();
    for _ in 0..opcode::fixed_bytes(number).div_ceil(8) {
        let word = match random.below(6) {
            0 => handle,
            1 => random.below(8192),
            2 => random.below(64),
            3 => random.next_u64() & 0x000f_ffff_000f_ffff,
            _ => 0,
        };
        body.extend_from_slice(&word.to_ne_bytes());
    }
    body.truncate(opcode::fixed_bytes(number));
    let names: [&[u8]; 4] = [b"name\0", b"other\0", b"user.a\0value", b"no end"];
    for _ in 0..random.below(3) {
        let name: &&[u8] = random.pick(&names[..]);
        body.extend_from_slice(name);
    }
    if random.chance(50) {
        let length = random.below_usize(4096);
        body.extend_from_slice(&random.bytes(length));
    }
    let mut whole = [header.as_bytes(), &body].concat();
    for _ in 0..random.below(4) {
        let at = size_of::<InHeader>() + random.below_usize(body.len().max(1));
        if let Some(byte) = whole.get_mut(at) {
            *byte ^= u8::try_from(random.below(256)).expect("a byte");
        }
    }
    if random.chance(10) {
        whole.truncate(random.below_usize(whole.len() + 1));
    }
    whole
}

#[test]
fn no_request_however_mangled_breaks_the_dispatcher() {
    let seed = number("TIDEGATE_SEED", 1);
    let mut random = Prng::named(seed, "fuse requests");
    let (dispatcher, ino, handle) = dispatcher(MemFs::new());
    let (mut served, mut out, mut data) = (0_u64, Vec::new(), vec![0; 64 << 10]);
    for step in 0..number("TIDEGATE_FUZZ_REQUESTS", 100_000) {
        let message = message(&mut random, ino, handle);
        let Some((request, input)) = Request::from_message(&message) else {
            continue;
        };
        // Skip sizes that the model would really have to allocate: they exhaust the host, not the decoder.
        if matches!(
            request.header.opcode,
            opcode::FALLOCATE | opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64
        ) {
            continue;
        }
        served += 1;
        if request.header.opcode == opcode::READ {
            let _ = dispatcher.read(&request, &mut data);
            continue;
        }
        out.clear();
        if let Answer::Reply(Ok(())) = dispatcher.serve(&request, input, &mut out) {
            assert!(
                out.len() <= usize::try_from(REPLY_BYTES_MAX).expect("fits"),
                "step {step}: a reply of {} bytes; replay with TIDEGATE_SEED={seed}",
                out.len()
            );
        }
    }
    assert!(served > 0, "the loop served nothing");
}

/// A file system may use all 64 bits of a handle, for example if its slots were reused often.
#[test]
fn a_handle_of_any_number_is_opened_read_and_released() {
    let (dispatcher, ino, _) = dispatcher(MemFs::new().with_next_handle(u64::MAX - 2));
    let request = |opcode, fixed: &[u8]| {
        let header = InHeader {
            opcode,
            nodeid: ino,
            ..InHeader::default()
        };
        Request::new(header, fixed)
    };
    let mut out = Vec::new();
    let open = OpenIn {
        flags: libc::O_RDWR.cast_unsigned(),
        ..OpenIn::default()
    };
    let answer = dispatcher.serve(&request(opcode::OPEN, open.as_bytes()), &[], &mut out);
    assert!(matches!(answer, Answer::Reply(Ok(()))));
    let (reply, _) = OpenOut::read_from_prefix(&out).unwrap();
    assert_eq!(reply.fh, u64::MAX - 1);
    let read = ReadIn {
        fh: reply.fh,
        size: 1,
        ..ReadIn::default()
    };
    assert_eq!(
        dispatcher.read(&request(opcode::READ, read.as_bytes()), &mut [0]),
        Ok(0)
    );
    let release = ReleaseIn {
        fh: reply.fh,
        ..ReleaseIn::default()
    };
    dispatcher.serve(&request(opcode::RELEASE, release.as_bytes()), &[], &mut out);
    let after = dispatcher.read(&request(opcode::READ, read.as_bytes()), &mut [0]);
    assert_eq!(after, Err(FsError::BadHandle));
}

/// The kernel leaves the checks of `system.` attributes to the file system, which sees the rights of the daemon.
#[test]
fn attributes_of_the_system_other_than_acls_are_changed_by_root_and_the_daemon_s_user_only() {
    let (dispatcher, ino, _) = dispatcher(MemFs::new());
    let serve = |opcode, uid, fixed: &[u8], rest: &[u8]| {
        let header = InHeader {
            opcode,
            nodeid: ino,
            uid,
            ..InHeader::default()
        };
        match dispatcher.serve(&Request::new(header, fixed), rest, &mut Vec::new()) {
            Answer::Reply(result) => result,
            Answer::None => panic!("a request with a reply"),
        }
    };
    let value = SetxattrIn {
        size: 1,
        ..SetxattrIn::default()
    };
    let other = rustix::process::geteuid().as_raw() + 1000;
    for (uid, name, expected) in [
        (other, &b"system.advise\0"[..], Err(FsError::NotSupported)),
        (0, b"system.advise\0", Ok(())),
        (other, b"system.posix_acl_access\0", Ok(())),
        (other, b"user.note\0", Ok(())),
    ] {
        let set = serve(opcode::SETXATTR, uid, value.as_bytes(), &[name, b"1"].concat());
        assert_eq!(set, expected, "{}", name.escape_ascii());
        let removed = serve(opcode::REMOVEXATTR, uid, &[], name);
        assert_eq!(removed, expected, "{}", name.escape_ascii());
    }
}
