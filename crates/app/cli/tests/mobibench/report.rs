//! The lines of the report, parsed as scripts parse those of the original.

use crate::bed::{Bed, number_after};

#[test]
fn the_lines_of_a_file_test_have_the_original_form() {
    let bed = Bed::new();
    let ran = bed.run(&["-q", "-f4096", "-a1"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let time = ran.line("[TIME]");
    let (seconds, micros) = (number_after(time, "[TIME] :"), number_after(time, " sec "));
    assert!(time.contains("us. \t"), "{time}");
    let bytes = number_after(time, "us. ");
    let (kib, mib) = (number_after(time, "B/sec, "), number_after(time, "KB/sec, "));
    let operations = number_after(time, "MB/sec.");
    let elapsed = seconds + micros / 1e6;
    assert!(
        (bytes * elapsed / f64::from(4 << 20) - 1.0).abs() < 0.01,
        "{time}"
    );
    assert!(
        (bytes / 1024.0 - kib).abs() < 1.0 && (kib / 1024.0 - mib).abs() < 0.01,
        "{time}"
    );
    assert!(
        (operations - kib / 4.0).abs() < 0.01 && time.ends_with(" IOPS(4KB) "),
        "{time}"
    );

    let processors = ran.line("[CPU] : Active,Idle,IoWait : ");
    assert_eq!(processors.split_whitespace().count(), 7, "{processors}");
    let switches = ran.line("[CON SWITCHES] : ");
    let (all, voluntary) = switches
        .trim_start_matches("[CON SWITCHES] : ")
        .split_once(' ')
        .expect("two numbers");
    let [all, voluntary] = [all, voluntary].map(|text| text.parse::<u64>().expect("a number"));
    assert!(all >= voluntary, "{switches}");
    assert_eq!(ran.out.lines().last(), Some("Err string : No error"));
}

#[test]
fn the_report_is_on_standard_output_and_messages_are_not() {
    let bed = Bed::new();
    let ran = bed.run(&["-f64", "-t0"]);
    assert!(ran.err.contains("-t 0"), "{}", ran.err);
    assert!(!ran.out.contains("is taken as"), "{}", ran.out);
    assert!(
        !ran.out.contains('%') && !ran.out.contains('\r'),
        "progress: {}",
        ran.out
    );
}
