use super::*;

fn call(text: &str) -> (Option<u32>, Option<Time>, &str, Vec<&str>, Answer<'_>) {
    let found = line(text).unwrap();
    let Event::Call {
        name,
        arguments: words,
        answer,
    } = found.event
    else {
        panic!("{found:?}");
    };
    (found.thread, found.time, name, arguments(words), answer)
}

#[test]
fn a_line_with_everything() {
    let text = r#"18633  1795232437.126619 openat(AT_FDCWD</tmp/r,(p>, "/etc/a\"b,c)", O_RDONLY|O_CLOEXEC) = 3</etc/x> <0.000005>"#;
    let (thread, time, name, words, answer) = call(text);
    assert_eq!((thread, name), (Some(18633), "openat"));
    assert_eq!(time, Some(Time::Absolute(1_795_232_437_126_619_000)));
    assert_eq!(
        words,
        ["AT_FDCWD</tmp/r,(p>", r#""/etc/a\"b,c)""#, "O_RDONLY|O_CLOEXEC"]
    );
    assert_eq!((answer.value, answer.annotation), ("3", Some("/etc/x")));
    assert_eq!((answer.duration_ns, answer.error), (Some(5000), None));
    assert_eq!(string(words[1]).unwrap(), b"/etc/a\"b,c)");
}

#[test]
fn times_and_threads_in_all_their_forms() {
    for (text, thread, time) in [
        (
            "[pid  77] 12:00:01.5 fsync(3) = 0",
            Some(77),
            Some(Time::OfDay(43_201_500_000_000)),
        ),
        (
            "77 12:00:01 fsync(3) = 0",
            Some(77),
            Some(Time::OfDay(43_201_000_000_000)),
        ),
        ("     0.000123 fsync(3) = 0", None, Some(Time::Relative(123_000))),
        ("77 fsync(3) = 0", Some(77), None),
        ("fsync(3) = 0", None, None),
    ] {
        let found = line(text).unwrap();
        assert_eq!((found.thread, found.time), (thread, time), "{text}");
    }
}

#[test]
fn errors_unfinished_and_resumed_calls_and_ends() {
    let (.., answer) = call(r#"access("/x", R_OK) = -1 ENOENT (No such file or directory) <0.000004>"#);
    assert_eq!((answer.value, answer.error), ("-1", Some("ENOENT")));
    let unfinished = line("5 1.000000 read(3,  <unfinished ...>").unwrap().event;
    assert_eq!(
        unfinished,
        Event::Unfinished {
            name: "read",
            arguments: "3,"
        }
    );
    let resumed = line(r#"5 1.100000 <... read resumed>"a)b"..., 4096) = 4096 <0.1>"#)
        .unwrap()
        .event;
    let Event::Resumed {
        name,
        arguments: words,
        answer,
    } = resumed
    else {
        panic!()
    };
    assert_eq!((name, words, answer.value), ("read", r#""a)b"..., 4096"#, "4096"));
    assert_eq!(line("5 +++ exited with 0 +++").unwrap().event, Event::Exit);
    assert_eq!(
        line("--- SIGCHLD {si_signo=SIGCHLD} ---").unwrap().event,
        Event::Remark
    );
    assert_eq!(line("hello world"), None);
}

#[test]
fn numbers_strings_and_descriptors() {
    assert_eq!(number("0x10"), Some(16));
    assert_eq!(number("0644"), Some(0o644));
    assert_eq!(number("-5"), Some(-5));
    assert_eq!(descriptor("3<socket:[12]>"), (Some(3), Some("socket:[12]")));
    assert_eq!(descriptor("AT_FDCWD"), (None, None));
    assert_eq!(string(r#""\303\251\x41\n""#).unwrap(), [0xC3, 0xA9, b'A', b'\n']);
    assert_eq!(string(r#""cut"..."#), None);
}
