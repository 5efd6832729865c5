//! Changes of the source that an ordinary user must not make through root's mount.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::XattrFlags;

use crate::harness::{Mounted, as_nobody, in_a_thread_of_nobody};

/// Sets the attribute `i` by both ioctl numbers: the native one and that of 32-bit programs.
const SET_IMMUTABLE: &str = r#"
open(my $file, "<", $ARGV[0]) or die $!;
for my $number (0x40086602, 0x40046602) {
    my $flags = pack("Q", 0x10);
    print ioctl($file, $number, $flags) ? "set" : "$!", "\n";
}
"#;

/// A mount of root that others may access, with a file of root that they may read.
fn start(options: &str) -> Option<Mounted> {
    if !testkit::needs(&[testkit::Need::Root]) {
        return None;
    }
    let mounted = Mounted::start_over(
        |source| {
            let folder = source.parent().expect("the folder of the test");
            fs::write(source.join("file"), "of root").expect("a temporary folder takes files");
            for folder in [folder, source] {
                fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).expect("it is ours");
            }
        },
        &["--passthrough", "off", "-o", options],
    )?;
    Some(mounted)
}

fn answers(mut user: Command, path: &Path) -> String {
    let run = user
        .args(["perl", "-e", SET_IMMUTABLE])
        .arg(path)
        .stderr(Stdio::inherit())
        .output();
    String::from_utf8(run.expect("it runs").stdout).expect("text")
}

/// The kernel checks callers of the native number, but passes on the other one unchecked.
#[test]
fn no_number_of_an_ioctl_leads_past_the_checks_of_owner_and_mount() {
    if Command::new("perl").arg("--version").output().is_err() {
        testkit::report_left_out("there is no perl");
        return;
    }
    for (options, expected) in [
        ("allow_other", "Operation not permitted"),
        ("ro", "Read-only file system"),
    ] {
        let Some(mounted) = start(options) else {
            return;
        };
        let user = match options {
            "ro" => Command::new("env"),
            _ => as_nobody(),
        };
        let told = answers(user, &mounted.mountpoint().join("file"));
        assert_eq!(
            told,
            format!("{expected}\nInappropriate ioctl for device\n"),
            "{options}"
        );
        fs::write(mounted.source().join("file"), "can be changed").unwrap();
    }
}

#[test]
fn names_of_trusted_attributes_are_for_root() {
    let Some(mounted) = start("allow_other") else {
        return;
    };
    let file = mounted.source().join("file");
    for name in ["trusted.secret", "user.open"] {
        if rustix::fs::setxattr(&file, name, b"value", XattrFlags::CREATE).is_err() {
            testkit::report_left_out("the host's folder for temporary files takes no trusted attributes");
            return;
        }
    }
    let names = |path: &Path| {
        let mut found = vec![0; 1000];
        let length = rustix::fs::listxattr(path, &mut found[..]).unwrap();
        String::from_utf8(found[..length].to_vec()).unwrap()
    };
    let shown = mounted.mountpoint().join("file");
    assert!(names(&shown).contains("trusted.secret\0"));
    in_a_thread_of_nobody(|| {
        assert_eq!(names(&shown), names(&file));
        assert_eq!(names(&shown), "user.open\0");
    });
}
