//! Decoders of text formats: traces in every format, fio jobs, cards and hosts of eMMC models, run records.

use std::io::Cursor;
use std::path::Path;

use emmc::card::CardFile;
use emmc::host::HostFile;
use formats::calls;
use formats::{BadLines, Format, ReadOptions, open_reader};
use live::{Description, Store};
use testkit::hostile::{Decoder, Kind};

use super::commands::{BLKPARSE, FIO, blktrace, run_in};

const STRACE: &str = include_str!("../../../../trace/formats/tests/traces/strace.txt");
const MOBIGEN: &str = include_str!("../../../../trace/formats/tests/traces/mobigen.txt");
const IOLOG_2: &str = include_str!("../../../../trace/formats/tests/traces/fio-iolog-2.txt");
const IOLOG_3: &str = include_str!("../../../../trace/formats/tests/traces/fio-iolog-3.txt");

const MOST: &str = "    0.000000000\tA\tWS\t23004888\t   8\t4767\t     IntentService[]\tM
    0.000111615\tQ\tWS\t23004888\t   8\t4767\t     IntentService[]\tM
    0.000492553\tD\tWAS\t23004888\t   8\t4767\t     IntentService[]\tM
    0.004244740\tC\tWAS\t23004888\t   8\t4767\t     IntentService[]\tM\tfile-NONE
    0.011868959\tC\tWAS\t 4079792\t 104\t 137\t     jbd2/mmcblk0p28\tJ\tfile-NONE
";
const FTRACE: &str = "# tracer: nop
         a b [1]-697     [001] .....  7000.000100: block_bio_queue: 8,0 WS 2048 + 8 [a b [1]]
     kworker/0:1H-12      [000] d..1.  7000.000300: block_rq_issue: 8,0 WS 4096 () 2048 + 8 none,0,0 [kworker/0:1H]
          <idle>-0       [000] d.h..  7000.000400: block_rq_complete: 8,0 WS () 2048 + 8 none,0,0 [0]
CPU:0 [LOST 12 EVENTS]
 fio   697 [000]  7000.000600: block:block_bio_queue: 8,0 R 4096 + 8 [fio]
           <idle>-0       [001] .....  7000.001100: block_rq_complete: 8,0 FF () 18446744073709551615 + 0 [0]
";
const BIOTRACER: &str = "4220896\t\t8\t\t4096\t\t5\t\t1398406382.756832267\t\t1398406382.757233725\t\t1398406382.757241486\t\t1398406382.757950028
49592392\t\t17\t\t8704\t\t0\t\t1398406382.762147944\t\t1398406382.762182267\t\t1398406382.762199194\t\t1398406382.763593934
";
const MSR: &str = "128166372003061629,hm,0,Write,7014912,4096,26\r
128166372016382155,hm,1,Read,1074696192,65536,11362\r
";
const ALIBABA: &str = "419,W,8792731648,16384,1577808000000626
725,R,126703644672,4096,1577808000001876
";
const PIXEL: &str = "proces,device,rw_flag,sector,size,timestamp\r
kworker/0:0H-5,8388608,R,47866368,16,44186.02139\r
a,b-c-7,8388608,R,1,1,44186.5\r
";
const CALLS: &str = concat!(
    r#"{"schema":"tidegate.calls/1","layer":"system_calls","origin":"test","command":["true"],"started_unix_ns":5}"#,
    "\n",
    r#"{"path":"/data/é\n"}"#,
    "\n",
    r#"{"path_bytes":[47,255]}"#,
    "\n",
    r#"{"t":3,"at":20,"ns":9,"r":{"done":4},"call":"write","handle":900,"bytes":4}"#,
    "\n",
    r#"{"t":3,"at":10,"ns":9,"r":{"done":4},"call":"open","name":0,"handle":900,"flags":"read-write,create"}"#,
    "\n",
    r#"{"t":3,"at":30,"ns":9,"r":{"done":4},"call":"unlink","name":1}"#,
    "\n",
    r#"{"end":{"calls":3,"skipped":{"mmap":1},"complete":true}}"#,
    "\n",
);

pub fn decoders() -> Vec<Decoder<'static>> {
    let mut all = vec![
        block_trace("blkparse", Format::Blkparse, Kind::Text, BLKPARSE.into()),
        block_trace("blktrace", Format::Blktrace, Kind::Bytes, blktrace()),
        block_trace("most", Format::Most, Kind::Text, MOST.into()),
        block_trace("ftrace", Format::Ftrace, Kind::Text, FTRACE.into()),
        block_trace(
            "fio i/o log, blocks",
            Format::FioIolog,
            Kind::Text,
            IOLOG_3.into(),
        ),
        block_trace("biotracer", Format::Biotracer, Kind::Text, BIOTRACER.into()),
        block_trace("pixel csv", Format::PixelCsv, Kind::Text, PIXEL.into()),
        block_trace("msr csv", Format::Msr, Kind::Text, MSR.into()),
        block_trace("alibaba csv", Format::Alibaba, Kind::Text, ALIBABA.into()),
        call_trace("strace", calls::Format::Strace, STRACE),
        call_trace("mobibench script", calls::Format::Mobigen, MOBIGEN),
        call_trace("fio i/o log 2", calls::Format::FioIolog, IOLOG_2),
        call_trace("fio i/o log 3", calls::Format::FioIolog, IOLOG_3),
        call_trace("blkparse, calls", calls::Format::Blkparse, BLKPARSE),
        call_trace("call trace", calls::Format::Calls, CALLS),
        text("fio job", vec![FIO.into()], |text| {
            fio::import("job.fio", text).is_ok()
        }),
        text(
            "emmc card",
            vec![
                card().into(),
                include_str!("../../../../emmc/emmc/cards/gt-i9300.toml").into(),
            ],
            |text| CardFile::parse("card", text).is_ok(),
        ),
        text(
            "emmc host",
            vec![include_str!("../../../../emmc/emmc/hosts/mshci.toml").into()],
            |text| HostFile::parse("host", text).is_ok(),
        ),
        description(),
        records(),
    ];
    all.extend(native());
    all
}

pub const fn card() -> &'static str {
    include_str!("../../../../emmc/emmc/cards/tlc-nvmevirt.toml")
}

fn text(name: &'static str, good: Vec<Vec<u8>>, read: fn(&str) -> bool) -> Decoder<'static> {
    Decoder {
        name,
        kind: Kind::Text,
        good,
        fix: |_| {},
        decode: Box::new(move |raw| read(&String::from_utf8_lossy(raw))),
    }
}

fn block_trace(name: &'static str, format: Format, kind: Kind, good: Vec<u8>) -> Decoder<'static> {
    let options = ReadOptions {
        format: Some(format),
        bad_lines: BadLines::Skip,
    };
    Decoder {
        name,
        kind,
        good: vec![good],
        fix: |_| {},
        decode: Box::new(move |raw| {
            let reader = Box::new(Cursor::new(raw.to_vec()));
            let Ok(mut source) = open_reader(reader, Path::new("trace"), options) else {
                return false;
            };
            loop {
                match source.next_item() {
                    Ok(Some(_)) => {}
                    Ok(None) => return true,
                    Err(_) => return false,
                }
            }
        }),
    }
}

fn call_trace(name: &'static str, format: calls::Format, good: &'static str) -> Decoder<'static> {
    Decoder {
        name,
        kind: Kind::Text,
        good: vec![good.into()],
        fix: |_| {},
        decode: Box::new(move |raw| {
            calls::parse(raw, Path::new("trace"), format, calls::ReadOptions::USUAL).is_ok()
        }),
    }
}

/// The description file beside the image of a card.
fn description() -> Decoder<'static> {
    let folder = super::folder();
    let image = folder.path().join("card");
    let mut card = CardFile::parse("card", card()).expect("it comes with the program");
    card.flash.capacity_bytes = card.flash.capacity_bytes.min(1 << 30);
    let made = Store::file(&image, &Description::new(card));
    drop(made.expect("there is room"));
    let beside = folder.path().join("card.json");
    Decoder {
        name: "emmc store's description",
        kind: Kind::Text,
        good: vec![std::fs::read(&beside).expect("it is there")],
        fix: |_| {},
        decode: Box::new(move |raw| {
            let image = folder.path().join("card");
            std::fs::write(folder.path().join("card.json"), raw).expect("there is room");
            Description::beside(&image).is_ok()
        }),
    }
}

fn records() -> Decoder<'static> {
    let folder = super::folder();
    std::fs::create_dir(folder.path().join("here")).expect("made");
    run_in(folder.path(), "bench file here --size 1m --output good.jsonl");
    let good = std::fs::read(folder.path().join("good.jsonl")).expect("it was made");
    Decoder {
        name: "run records",
        kind: Kind::Text,
        good: vec![good],
        fix: |_| {},
        decode: Box::new(move |raw| {
            let path = folder.path().join("records.jsonl");
            std::fs::write(&path, raw).expect("there is room");
            results::read_records(&path).is_ok()
        }),
    }
}

/// A native trace: its header, and each table with a header that lacks checksums, as another tool may write it.
fn native() -> Vec<Decoder<'static>> {
    let names = [
        ("native trace, header", "header.json", Kind::Text),
        ("native trace, requests", "requests.parquet", Kind::Bytes),
        ("native trace, runs", "runs.parquet", Kind::Bytes),
        ("native trace, events", "events.parquet", Kind::Bytes),
    ];
    let decoder = |(name, file, kind): (&'static str, &'static str, Kind)| {
        let folder = super::folder();
        std::fs::write(folder.path().join("good.txt"), BLKPARSE).expect("there is room");
        run_in(folder.path(), "trace convert good.txt good.trace");
        let trace = folder.path().join("good.trace");
        let header = std::fs::read(trace.join("header.json")).expect("it was made");
        let mut header: serde_json::Value = serde_json::from_slice(&header).expect("it is JSON");
        header.as_object_mut().expect("it is an object").remove("tables");
        std::fs::write(trace.join("header.json"), header.to_string()).expect("there is room");
        Decoder {
            name,
            kind,
            good: vec![std::fs::read(trace.join(file)).expect("it was made")],
            fix: |_| {},
            decode: Box::new(move |raw| {
                let trace = folder.path().join("good.trace");
                std::fs::write(trace.join(file), raw).expect("there is room");
                let Ok(mut source) = formats::native::NativeReader::open(&trace) else {
                    return false;
                };
                formats::read_all(&mut source).is_ok()
            }),
        }
    };
    names.into_iter().map(decoder).collect()
}
