//! Foreign formats: small samples as their tools write them, and the items read from them.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::io::Cursor;
use std::path::Path;

use formats::import::detect;
use formats::{BadLines, Format, ReadOptions, SkippedPlace, TraceSource, open_reader, read_all};
use results::block_trace::{
    BlockTrace, BlockType, CauseQuality, DeviceNumber, IoPriority, Operation, Request, RequestFlags,
};

const SKIP: ReadOptions = ReadOptions {
    format: None,
    bad_lines: BadLines::Skip,
};

const REFUSE: ReadOptions = ReadOptions {
    format: None,
    bad_lines: BadLines::Refuse,
};

fn source(text: &str, options: ReadOptions) -> Result<Box<dyn TraceSource>, String> {
    source_of_bytes(text.as_bytes().to_vec(), options)
}

fn source_of_bytes(bytes: Vec<u8>, options: ReadOptions) -> Result<Box<dyn TraceSource>, String> {
    let reader = Box::new(Cursor::new(bytes));
    open_reader(reader, Path::new("x.txt"), options).map_err(|error| error.to_string())
}

fn read(text: &str) -> BlockTrace {
    let trace = read_all(&mut *source(text, REFUSE).unwrap()).unwrap();
    for (index, request) in trace.requests.iter().enumerate() {
        assert_eq!(request.id, u64::try_from(index).unwrap());
        let total: u64 = request.runs.iter().map(|run| run.bytes).sum();
        assert_eq!(total, request.bytes, "runs cover the request: {request:?}");
    }
    trace
}

fn times(request: &Request) -> [Option<u64>; 4] {
    [
        request.queued_ns,
        request.inserted_ns,
        request.issued_ns,
        request.completed_ns,
    ]
}

fn limitation(trace: &BlockTrace, what: &str) -> String {
    let found = trace
        .header
        .limitations
        .iter()
        .find(|limitation| limitation.what == what);
    found
        .unwrap_or_else(|| panic!("{what} is not told: {:?}", trace.header.limitations))
        .why
        .clone()
}

/// Two pieces of two processes merged into one request, completed in two parts; a flush; a read with only a completion;
/// a driver command; a requeued request; the summary.
const BLKPARSE: &str = "\
  8,0    1        1     0.000000100   697  A  WS 223490 + 8 <- (8,1) 221442
  8,0    1        2     0.000000200   697  Q  WS 223490 + 8 [my app]
  8,0    1        3     0.000000300   697  G  WS 223490 + 8 [my app]
  8,0    1        4     0.000000400   697  P   N [my app]
  8,0    0        1     0.000000500   698  Q  WS 223498 + 16 [other]
  8,0    0        2     0.000000600   698  M  WS 223498 + 16 [other]
  8,0    1        5     0.000000700   697  I  WS 223490 + 24 [my app]
  8,0    1        6     0.000000800   697  U   N [my app] 1
  8,0    1        7     0.000000900   120  D  WS 223490 + 24 [kworker/0:1H]
  8,0    1        8     0.000001500     0  C  WS 223490 + 8 [0]
  8,0    1        9     0.000001600     0  C  WS 223498 + 16 [0]
  8,0    1        0     0.000001700     0  m   N cfq697S / complete
  8,0    1       10     0.000002000   697  Q FWS [my app]
  8,0    1       11     0.000002100   120  D  FF [kworker/0:1H]
  8,0    1       12     0.000002500     0  C  FF 0 [0]
  8,0    1       13     0.000002600     0  C FWS 0 [0]
  8,0    1       14     0.000003000     0  C  RA 5000 + 8 [-5]
  8,0    1       15     0.000003500   800  D   R 36 (12 00 00 00 24 00) [smartd]
  8,0    1       16     0.000003600     0  C   R (12 00 00 00 24 00) [0]
  8,0    1       17     0.000004000   697  Q   D 900 + 8 [my app]
  8,0    1       18     0.000004100   697  D   D 900 + 8 [my app]
  8,0    1       19     0.000004200   697  R   D 900 + 8 [0]
  8,0    1       20     0.000004300   697  D   D 900 + 8 [my app]
  8,0    1       21     0.000004400     0  C   D 900 + 8 [0]
CPU0 (sda):
 Reads Queued:           0,        0KiB\t Writes Queued:           1,        8KiB
Throughput (R/W): 0KiB/s / 24KiB/s
Events (sda): 21 entries
Skips: 0 forward (0 -   0.0%)
";

#[test]
fn steps_of_blkparse_become_requests() {
    let trace = read(BLKPARSE);
    let [write, flush, read, command, discard] = trace.requests.as_slice() else {
        panic!("{:#?}", trace.requests);
    };
    assert_eq!(write.device, DeviceNumber { major: 8, minor: 0 });
    assert_eq!((write.sector, write.bytes), (223_490, 24 * 512));
    assert_eq!(
        (write.operation, write.flags),
        (Operation::Write, RequestFlags::SYNC)
    );
    assert_eq!(times(write), [Some(200), Some(700), Some(900), Some(1600)]);
    assert_eq!((write.status, write.in_flight), (Some(0), Some(1)));
    assert_eq!(
        &*write.submitter.as_ref().unwrap().name,
        "my app",
        "not the thread that issued it"
    );
    let runs: Vec<_> = write
        .runs
        .iter()
        .map(|run| {
            (
                run.sector,
                run.bytes,
                run.cause.as_ref().unwrap().pid,
                run.cause_quality,
            )
        })
        .collect();
    assert_eq!(
        runs,
        [
            (223_490, 8 * 512, 697, CauseQuality::Submitter),
            (223_498, 16 * 512, 698, CauseQuality::Submitter)
        ]
    );

    assert_eq!(
        (flush.operation, flush.bytes, flush.sector),
        (Operation::Flush, 0, 0)
    );
    assert_eq!(times(flush), [Some(2000), None, Some(2100), Some(2500)]);
    assert_eq!(flush.submitter.as_ref().unwrap().pid, 697);
    assert!(flush.runs.is_empty());

    assert_eq!(times(read), [None, None, None, Some(3000)]);
    assert_eq!(
        (read.operation, read.flags, read.status),
        (Operation::Read, RequestFlags::READAHEAD, Some(5))
    );
    assert_eq!(
        read.submitter, None,
        "whoever was interrupted by the completion is nobody"
    );

    assert_eq!(command.operation, Operation::Driver);
    assert_eq!(times(command), [None, None, Some(3500), Some(3600)]);

    assert_eq!(discard.operation, Operation::Discard);
    assert_eq!(times(discard), [Some(4000), None, Some(4300), Some(4400)]);
    assert_eq!(discard.in_flight, Some(1));
    limitation(&trace, "files, types of blocks");
    limitation(&trace, "messages of drivers and schedulers");
}

/// Requests that began at one time keep the order of their first lines, whatever their operations, sectors and ends.
#[test]
fn requests_of_one_time_are_in_the_order_of_the_file() {
    let order = |text: &str| -> Vec<(Operation, u64)> {
        let requests = read(text).requests;
        requests
            .iter()
            .map(|request| (request.operation, request.sector))
            .collect()
    };
    let expected = [
        (Operation::Write, 96),
        (Operation::Read, 64),
        (Operation::Write, 8),
    ];
    let queued = "\
  8,0    1        1     0.000000200   697  Q  W 96 + 8 [first]
  8,0    1        2     0.000000200   697  Q  R 64 + 8 [second]
  8,0    1        3     0.000000200   697  Q  W 8 + 8 [third]
";
    assert_eq!(order(queued), expected);
    let completed = "\
  8,0    1        4     0.000000300   697  D  W 8 + 8 [third]
  8,0    1        5     0.000000300   697  D  R 64 + 8 [second]
  8,0    1        6     0.000000300   697  D  W 96 + 8 [first]
  8,0    1        7     0.000000400     0  C  W 8 + 8 [0]
  8,0    1        8     0.000000500     0  C  R 64 + 8 [0]
  8,0    1        9     0.000000600     0  C  W 96 + 8 [0]
";
    assert_eq!(order(&format!("{queued}{completed}")), expected);
}

#[test]
fn a_piece_that_is_split_becomes_two_requests_with_its_queue_time() {
    let trace = read(
        "8,0 0 1 0.000000001 5 Q R 1000 + 16 [a]\n\
         8,0 0 2 0.000000002 5 X R 1000 / 1008 [a]\n\
         8,0 0 3 0.000000003 5 D R 1000 + 8 [a]\n\
         8,0 0 4 0.000000004 5 D R 1008 + 8 [a]\n\
         8,0 0 5 0.000000005 0 C R 1008 + 8 [0]\n\
         8,0 0 6 0.000000006 0 C R 1000 + 8 [0]\n",
    );
    let seen: Vec<_> = trace
        .requests
        .iter()
        .map(|request| (request.sector, request.bytes, times(request)))
        .collect();
    assert_eq!(
        seen,
        [
            (1008, 4096, [Some(1), None, Some(4), Some(5)]),
            (1000, 4096, [Some(1), None, Some(3), Some(6)])
        ]
    );
}

#[test]
fn a_device_without_a_queue_has_pieces_for_requests() {
    // dm and zram: only Q and C.
    let trace = read(
        "253,0 0 1 0.000000001 5 Q W 1000 + 16 [a]\n\
         253,0 0 2 0.000000009 0 C W 1000 + 16 [0]\n\
         253,0 0 3 0.000000010 5 Q W 2000 + 16 [a]\n",
    );
    assert_eq!(times(&trace.requests[0]), [Some(1), None, None, Some(9)]);
    assert_eq!(
        times(&trace.requests[1]),
        [Some(10), None, None, None],
        "what never ended is kept"
    );
    assert_eq!(
        limitation(&trace, "issue times"),
        "the source has no issue events (D)"
    );
}

const MOST: &str = "    0.000000000\tA\tWS\t23004888\t   8\t4767\t     IntentService[]\tM
    0.000111615\tQ\tWS\t23004888\t   8\t4767\t     IntentService[]\tM
    0.000204740\tG\tWS\t23004888\t   8\t4767\t     IntentService[]\tM
    0.000492553\tD\tWAS\t23004888\t   8\t4767\t     IntentService[]\tM
    0.004244740\tC\tWAS\t23004888\t   8\t4767\t     IntentService[]\tM\tfile-NONE
    0.011868959\tC\tWAS\t 4079792\t 104\t 137\t     jbd2/mmcblk0p28\tJ\tfile-NONE
    0.013739323\tC\tWS\t 4079896\t   0\t 137\t     jbd2/mmcblk0p28\tJ
    0.097858699\tC\tWAS\t23901648\t   8\t103336\t           GCMReader\tD\t/data/com.google.android.gms/databases/rmq.db-journal
    0.097900000\tC\tWAS\t23901700\t   8\t103336\t           GCMReader\tM
";

#[test]
fn lines_of_most_keep_their_types_and_paths() {
    let trace = read(MOST);
    let [metadata, journal, flush, data, deleted] = trace.requests.as_slice() else {
        panic!("{:#?}", trace.requests);
    };
    assert_eq!(metadata.runs[0].block_type, BlockType::Metadata);
    assert_eq!(
        times(metadata),
        [Some(111_615), None, Some(492_553), Some(4_244_740)]
    );
    assert_eq!(metadata.submitter.as_ref().unwrap().pid, 4767);
    assert_eq!(
        (journal.runs[0].block_type, journal.runs[0].path.clone()),
        (BlockType::Journal, None)
    );
    assert_eq!((flush.operation, flush.bytes), (Operation::Flush, 0));
    let run = &data.runs[0];
    assert_eq!(
        run.path.as_deref(),
        Some("/data/com.google.android.gms/databases/rmq.db-journal")
    );
    assert_eq!(
        (run.block_type, run.detail.as_deref(), run.deleted),
        (BlockType::Data, Some("-journal"), false)
    );
    let run = &deleted.runs[0];
    assert_eq!(
        (run.block_type, run.detail.as_deref(), run.deleted),
        (BlockType::Data, Some("-journal"), true)
    );
    assert!(limitation(&trace, "temporary files: their class alone").starts_with("2 lines"));
}

#[test]
fn a_row_of_biotracer_is_a_request_with_its_times() {
    let trace = read(
        "4220896\t\t8\t\t4096\t\t5\t\t1398406382.756832267\t\t1398406382.757233725\t\t1398406382.757241486\t\t1398406382.757950028\n\
         49592392\t\t17\t\t8704\t\t0\t\t1398406382.762147944\t\t1398406382.762182267\t\t1398406382.762199194\t\t1398406382.763593934\n",
    );
    assert_eq!(
        times(&trace.requests[0]),
        [Some(0), None, Some(401_458), Some(1_117_761)]
    );
    assert_eq!(trace.requests[0].operation, Operation::Write);
    assert_eq!(
        (trace.requests[1].operation, trace.requests[1].bytes),
        (Operation::Read, 8192)
    );
    assert_eq!(trace.header.start_realtime_ns, Some(1_398_406_382_756_832_267));
    assert!(limitation(&trace, "exact sizes").starts_with("1 sizes"));
}

#[test]
fn a_clock_that_is_set_during_a_trace_makes_no_pause_of_decades() {
    let trace = read(
        "0\t8\t4096\t4\t1.000000000\t1.000000001\t1.000000002\t1.000000003\n\
         8\t8\t4096\t4\t1388396748.000000000\t1388396748.000000001\t1388396748.000000002\t1388396748.000000003\n\
         9\t8\t4096\t4\t1398396748.000000000\t1398396748.000000001\t1398396748.000000002\t1398396748.000000003\n",
    );
    assert_eq!(
        times(&trace.requests[2]),
        [Some(0), None, Some(1), Some(3)],
        "set twice"
    );
    assert_eq!(times(&trace.requests[1]), [Some(0), None, Some(1), Some(3)]);
    limitation(&trace, "a pause");
    assert_eq!(trace.header.start_realtime_ns, None);
}

#[test]
fn rows_of_the_pixel_csv_are_requests_with_a_process() {
    let trace = read(
        "proces,device,rw_flag,sector,size,timestamp\r\n\
         dmd-1151,8388608,W,93897440,1024,44186.011543\r\n\
         kworker/0:0H-5,8388608,R,47866368,16,44186.02139\r\n\
         a,b-c-7,8388608,R,1,1,44186.5\r\n\
         AsyncTask,8388608,W,47863672,8,44208.225449\r\n",
    );
    assert_eq!(trace.requests.len(), 4);
    let first = &trace.requests[0];
    assert_eq!(first.device, DeviceNumber { major: 8, minor: 0 });
    assert_eq!(
        (first.sector, first.bytes, first.operation),
        (93_897_440, 1024 * 512, Operation::Write)
    );
    assert_eq!(times(&trace.requests[1]), [Some(9_847_000), None, None, None]);
    let name = |index: usize| trace.requests[index].submitter.clone().unwrap();
    assert_eq!((&*name(1).name, name(1).pid), ("kworker/0:0H", 5));
    assert_eq!(
        (&*name(2).name, name(2).pid),
        ("a,b-c", 7),
        "names may have commas and dashes"
    );
}

/// Lines in the form of the published files, of two volumes.
const MSR: &str = "\
128166372003061629,hm,0,Write,7014912,4096,26\r
128166372016382155,hm,1,Read,1074696192,65536,11362\r
128166372016382165,hm,0,Read,512,512,0\r
";

#[test]
fn rows_of_msr_cambridge_are_requests_with_their_response_times() {
    let trace = read(MSR);
    let seen: Vec<_> = trace
        .requests
        .iter()
        .map(|request| {
            (
                request.device.minor,
                request.operation,
                request.sector,
                request.bytes,
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            (0, Operation::Write, 13_701, 4096),
            (1, Operation::Read, 2_099_016, 65_536),
            (0, Operation::Read, 1, 512)
        ]
    );
    assert_eq!(times(&trace.requests[0]), [Some(0), None, None, Some(2_600)]);
    assert_eq!(
        times(&trace.requests[1]),
        [Some(1_332_052_600), None, None, Some(1_333_188_800)]
    );
    let names: Vec<_> = trace
        .header
        .devices
        .iter()
        .map(|device| device.name.as_str())
        .collect();
    assert_eq!(names, ["hm_0", "hm_1"]);
    // 2007-02-22 17:00:00.3061629 UTC.
    assert_eq!(trace.header.start_realtime_ns, Some(1_172_163_600_306_162_900));
    limitation(&trace, "time in the device");
    let with_header = format!("Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n{MSR}");
    assert_eq!(read(&with_header).requests, trace.requests);
}

#[test]
fn a_bad_row_of_msr_cambridge_is_told_by_its_column() {
    for (row, expected) in [
        (
            "128166372003061629,hm,0,Write,7014912,4096",
            "seven columns: `Timestamp,Hostname",
        ),
        (
            "1.5,hm,0,Write,7014912,4096,26",
            "Timestamp in ticks of 100 ns since 1601",
        ),
        (
            "1844674407370955162,hm,0,Write,0,4096,26",
            "Timestamp in ticks of 100 ns since 1601",
        ),
        (
            "128166372003061629,hm,a,Write,0,4096,26",
            "a number in DiskNumber",
        ),
        (
            "128166372003061629,hm,0,Trim,0,4096,26",
            "`Read` or `Write` in Type",
        ),
        (
            "128166372003061629,hm,0,Read,100,4096,26",
            "bytes in Offset, a multiple of 512",
        ),
        (
            "128166372003061629,hm,0,Read,-512,4096,26",
            "bytes in Offset, a multiple of 512",
        ),
        (
            "128166372003061629,hm,0,Read,0,0,26",
            "bytes in Size, a multiple of 512",
        ),
        (
            "128166372003061629,hm,0,Read,0,512,26,7",
            "seven columns: `Timestamp,Hostname",
        ),
        (
            "128166372003061629,hm,0,Read,0,512,-26",
            "ticks of 100 ns in ResponseTime",
        ),
        (
            "128166372003061629,hm,0,Read,18446744073709551104,512,26",
            "a place that a device can have",
        ),
    ] {
        let error = read_all(&mut *source(&format!("{MSR}{row}\n"), REFUSE).unwrap()).unwrap_err();
        let told = format!("x.txt, line 4: expected {expected}");
        assert!(error.to_string().starts_with(&told), "{error}");
        assert!(error.to_string().contains(&format!("found `{row}`")), "{error}");
    }
    let text = format!("nonsense,here\n{MSR}");
    let mut lenient = source(&text, SKIP).unwrap();
    assert_eq!(read_all(&mut *lenient).unwrap().requests.len(), 3);
    assert_eq!(lenient.skipped().unwrap().count, 1);
}

/// The first rows of the published schema's form, of two disks.
const ALIBABA: &str = "\
419,W,8792731648,16384,1577808000000626
725,R,126703644672,4096,1577808000001876
419,R,0,512,1577808000001876
";

#[test]
fn rows_of_alibaba_are_requests_of_virtual_disks() {
    let trace = read(ALIBABA);
    let seen: Vec<_> = trace
        .requests
        .iter()
        .map(|request| {
            (
                request.device.minor,
                request.operation,
                request.sector,
                request.bytes,
                times(request),
            )
        })
        .collect();
    let at = |ns| [Some(ns), None, None, None];
    assert_eq!(
        seen,
        [
            (419, Operation::Write, 17_173_304, 16_384, at(0)),
            (725, Operation::Read, 247_468_056, 4096, at(1_250_000)),
            (419, Operation::Read, 0, 512, at(1_250_000)),
        ]
    );
    let devices = trace.header.devices.iter();
    let names: Vec<_> = devices.map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["disk-419", "disk-725"]);
    // 2019-12-31 16:00:00.000626 UTC, which is 2020-01-01 in Beijing.
    assert_eq!(trace.header.start_realtime_ns, Some(1_577_808_000_000_626_000));
    limitation(&trace, "latencies");
    let with_header = format!("device_id,opcode,offset,length,timestamp\n{ALIBABA}");
    assert_eq!(read(&with_header).requests, trace.requests);
}

#[test]
fn a_bad_row_of_alibaba_is_told_by_its_column() {
    for (row, expected) in [
        ("419,W,0,512", "five columns: `device_id,opcode"),
        (
            "419,W,0,512,1577808000000626,7",
            "five columns: `device_id,opcode",
        ),
        (
            "-1,W,0,512,1577808000000626",
            "a number below 1048576 in device_id",
        ),
        (
            "1048576,W,0,512,1577808000000626",
            "a number below 1048576 in device_id",
        ),
        ("419,w,0,512,1577808000000626", "`R` or `W` in opcode"),
        (
            "419,W,100,512,1577808000000626",
            "bytes in offset, a multiple of 512",
        ),
        ("419,W,0,0,1577808000000626", "bytes in length, a multiple of 512"),
        (
            "419,W,0,513,1577808000000626",
            "bytes in length, a multiple of 512",
        ),
        ("419,W,0,512,1577808000.5", "microseconds since 1970 in timestamp"),
        (
            "419,W,0,512,18446744073709552",
            "microseconds since 1970 in timestamp",
        ),
        (
            "419,W,18446744073709551104,512,1577808000000626",
            "a place that a device can have",
        ),
    ] {
        let error = read_all(&mut *source(&format!("{ALIBABA}{row}\n"), REFUSE).unwrap()).unwrap_err();
        let told = format!("x.txt, line 4: expected {expected}");
        assert!(error.to_string().starts_with(&told), "{error}");
        assert!(error.to_string().contains(&format!("found `{row}`")), "{error}");
    }
}

#[test]
fn rows_of_other_csv_files_are_not_those_of_alibaba() {
    let detected = |text: &str| detect(text.as_bytes());
    assert_eq!(detected(ALIBABA), Some(Format::Alibaba));
    assert_eq!(detected(MSR), Some(Format::Msr));
    let pixel = "proces,device,rw_flag,sector,size,timestamp\na-7,8388608,R,512,1,44186.5\n";
    assert_eq!(detected(pixel), Some(Format::PixelCsv));
    // A name with a comma is a column more, with numbers in all the others too.
    assert_eq!(detected("1,2-7,8388608,R,512,1,44186\n"), Some(Format::PixelCsv));
    for foreign in [
        "1538323200,12910952,128,0,1063",
        "time,op,offset,size,disk",
        "419,R,0,512",
        "419,1,0,512,1577808000000626",
        "419;R;0;512;1577808000000626",
    ] {
        assert_eq!(detected(foreign), None, "{foreign}");
    }
}

#[test]
fn logs_of_fio_are_requests_to_their_files() {
    let text = "fio version 3 iolog\n0 /tmp/a b add\n10 /tmp/a b open\n20 /tmp/a b write 4096 8192\n\
                30 /dev/sda read 513 512\n40 /tmp/a b sync 0 0\n50 /tmp/a b trim 0 4096\n60 /tmp/a b close\n";
    let trace = read(text);
    let seen: Vec<_> = trace
        .requests
        .iter()
        .map(|request| {
            (
                request.queued_ns.unwrap(),
                request.operation,
                request.sector,
                request.bytes,
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            (20_000, Operation::Write, 8, 8192),
            (30_000, Operation::Read, 1, 512),
            (40_000, Operation::Flush, 0, 0),
            (50_000, Operation::Discard, 0, 4096)
        ]
    );
    assert_eq!(trace.requests[0].runs[0].path.as_deref(), Some("/tmp/a b"));
    let names: Vec<_> = trace
        .header
        .devices
        .iter()
        .map(|device| device.name.as_str())
        .collect();
    assert_eq!(names, ["/tmp/a b", "/dev/sda"]);

    let two = read("fio version 2 iolog\n/a add\n/a open\n/a wait 30 0\n/a write 0 512\n/a close\n");
    assert_eq!(two.requests[0].queued_ns, Some(30_000));
}

const FTRACE: &str = "\
# tracer: nop
#
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
         a b [1]-697     [001] .....  7000.000100: block_bio_queue: 8,0 WS 2048 + 8 [a b [1]]
              fio-697     (  690) [001] .....  7000.000200: block_rq_insert: 8,0 WS 4096 () 2048 + 8 be,0,4 [fio]
     kworker/0:1H-12      [000] d..1.  7000.000300: block_rq_issue: 8,0 WS 4096 () 2048 + 8 none,0,0 [kworker/0:1H]
          <idle>-0       [000] d.h..  7000.000400: block_rq_complete: 8,0 WS () 2048 + 8 none,0,0 [0]
CPU:0 [LOST 12 EVENTS]
              fio-697     [001] .....  7000.000500: sched_switch: prev_comm=fio
 fio   697 [000]  7000.000600: block:block_bio_queue: 8,0 R 4096 + 8 [fio]
 fio   697 [000]  7000.000700: block:block_rq_issue: 8,0 R 4096 () 4096 + 8 [fio]
 swapper     0 [000]  7000.000800: block:block_rq_complete: 8,0 R () 4096 + 8 [0]
              fio-697     [001] .....  7000.000900:   8,0    Q   R 9000 + 8 [fio]
              fio-697     [001] .....  7000.000950:   8,0    D   R 9000 + 8 [fio]
           <idle>-0       [001] .....  7000.000960:   8,0    C   R 9000 + 8 [0]
              fio-697     [001] .....  7000.001000: block_rq_issue: 8,0 FF 0 () 18446744073709551615 + 0 [fio]
           <idle>-0       [001] .....  7000.001100: block_rq_complete: 8,0 FF () 18446744073709551615 + 0 [0]
";

#[test]
fn events_of_ftrace_trace_cmd_and_perf_become_requests() {
    let trace = read(FTRACE);
    let seen: Vec<_> = trace
        .requests
        .iter()
        .map(|request| (request.sector, times(request)))
        .collect();
    assert_eq!(
        seen,
        [
            (2048, [Some(0), Some(100_000), Some(200_000), Some(300_000)]),
            (4096, [Some(500_000), None, Some(600_000), Some(700_000)]),
            (9000, [Some(800_000), None, Some(850_000), Some(860_000)]),
            (0, [None, None, Some(900_000), Some(1_000_000)]),
        ]
    );
    let first = trace.requests[0].submitter.as_ref().unwrap();
    assert_eq!((&*first.name, first.pid), ("a b [1]", 697));
    assert_eq!(
        trace.requests[0].priority,
        Some(IoPriority { class: 2, level: 4 })
    );
    assert_eq!(trace.requests[1].priority, None);
    assert_eq!(trace.header.lost_records, 12);
    limitation(&trace, "events that are none of a request");
}

#[test]
fn bad_lines_are_counted_and_shown_or_refused() {
    let text =
        "8,0 0 1 0.000000001 5 D R 1000 + 8 [a]\nwhat is this\n8,0 0 2 0.000000005 0 C R 1000 + 8 [0]\n";
    let mut skipping = source(text, SKIP).unwrap();
    let trace = read_all(&mut *skipping).unwrap();
    assert_eq!(trace.requests.len(), 1);
    let skipped = skipping.skipped().unwrap();
    assert_eq!(
        (skipped.count, skipped.first[0].place),
        (1, SkippedPlace::Line(2))
    );
    assert_eq!(skipped.first[0].found, "what is this");

    let error = read_all(&mut *source(text, REFUSE).unwrap())
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("x.txt, line 2: expected an event of blkparse"),
        "{error}"
    );
    assert!(
        error.contains("found `what is this`; without --strict"),
        "{error}"
    );
}

#[test]
fn a_head_of_json_lines_may_have_spaces() {
    let line = "{\"format\": \"tidegate.block-trace\", \"schema\": 2}\n";
    let compact = line.replace(' ', "");
    for head in [line, &compact] {
        assert_eq!(detect(head.as_bytes()), Some(Format::JsonLines), "{head}");
    }
    let other = "{\"format\": \"tidegate.block-trace-of-others\"}\n";
    assert_ne!(detect(other.as_bytes()), Some(Format::JsonLines));
}

#[test]
fn records_of_which_none_can_be_read_are_an_error() {
    let lines = "{\"format\":\"tidegate.block-trace\",\"schema\":2}\nnonsense\n{\"request\":{}}\n";
    let error = read_all(&mut *source(lines, SKIP).unwrap())
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("x.txt: none of 2 records could be read; the first is at line 2: expected"),
        "{error}"
    );
    let whole = [record_of_blktrace(u64::MAX / 2), record_of_blktrace(u64::MAX / 4)].concat();
    let error = read_all(&mut *source_of_bytes(whole.clone(), SKIP).unwrap())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("none of 2 records could be read; the first is at sector 9223372036854775807"),
        "{error}"
    );
    // One that can be read is enough; the other is told by its sector.
    let mixed = [record_of_blktrace(8), whole].concat();
    let mut mixed = source_of_bytes(mixed, SKIP).unwrap();
    assert_eq!(read_all(&mut *mixed).unwrap().requests.len(), 1);
    let skipped = mixed.skipped().unwrap();
    assert_eq!(skipped.first[0].place, SkippedPlace::Sector(u64::MAX / 2));
}

/// A request of 4 KiB that is given to the driver, as blktrace stores it.
fn record_of_blktrace(sector: u64) -> Vec<u8> {
    let mut record = Vec::new();
    record.extend(0x6561_7407_u32.to_le_bytes());
    record.extend(1_u32.to_le_bytes());
    record.extend(1_000_u64.to_le_bytes());
    record.extend(sector.to_le_bytes());
    record.extend(4096_u32.to_le_bytes());
    // Issue, a read.
    record.extend(0x0001_0007_u32.to_le_bytes());
    record.extend(
        [
            1_u32.to_le_bytes(),
            (8_u32 << 20).to_le_bytes(),
            0_u32.to_le_bytes(),
        ]
        .concat(),
    );
    record.extend([0; 4]);
    record
}

#[test]
fn what_is_no_trace_is_named() {
    let error = source("\u{1}hello\n", SKIP).err().unwrap();
    assert!(
        error.starts_with(
            "x.txt: no known format of traces: expected a native trace or one of blktrace, jsonl, fio"
        ),
        "{error}"
    );
    assert!(
        error.ends_with("found `\\u0001hello`; name the format with --from"),
        "{error}"
    );
    assert!(source("", SKIP).err().unwrap().contains("found nothing"));
    // With the wrong format named.
    let options = ReadOptions {
        format: Some(Format::Most),
        ..SKIP
    };
    let error = read_all(&mut *source(BLKPARSE, options).unwrap())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("expected a line of MOST") && error.contains("--from"),
        "{error}"
    );
}

#[test]
fn a_million_pieces_that_never_end_take_bounded_memory_and_time() {
    use std::fmt::Write as _;
    let mut text = String::new();
    for index in 0..300_000_u32 {
        writeln!(
            text,
            "8,0 0 1 0.{index:09} 5 Q W {} + 8 [a]",
            u64::from(index) * 8
        )
        .unwrap();
    }
    let mut source = source(&text, REFUSE).unwrap();
    let mut count = 0;
    while source.next_item().unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 300_000);
    let limitations = &source.header().limitations;
    assert!(
        limitations
            .iter()
            .any(|limitation| limitation.what == "completions"),
        "{limitations:?}"
    );
}

/// Samples with bytes changed, cut, doubled and joined: every reader returns, with any result.
#[test]
fn no_reader_panics_on_anything() {
    let words = [
        "[",
        "]",
        "(",
        ")",
        " + ",
        " / ",
        "-1",
        "18446744073709551615",
        "\t",
        ",",
        "F",
        "\u{ff}",
        "\n",
    ];
    let samples = [
        BLKPARSE,
        MOST,
        FTRACE,
        MSR,
        ALIBABA,
        "fio version 3 iolog\n0 a write 0 512\n",
    ];
    for (number, text) in samples.iter().enumerate() {
        for seed in 0..150_u64 {
            let mut bytes = text.as_bytes().to_vec();
            let mut state = seed * 31 + u64::try_from(number).unwrap() + 1;
            let mut random = || {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                usize::try_from(state >> 33).unwrap()
            };
            for _ in 0..1 + seed % 20 {
                let place = random() % (bytes.len() + 1);
                match random() % 4 {
                    0 => {
                        let end = (place + random() % 100).min(bytes.len());
                        let copy = bytes[place..end].to_vec();
                        let to = random() % (bytes.len() + 1);
                        bytes.splice(to..to, copy);
                    }
                    1 => {
                        let word = words[random() % words.len()];
                        bytes.splice(place..place, word.bytes());
                    }
                    2 => {
                        let place = place.min(bytes.len() - 1);
                        bytes[place] = u8::try_from(random() % 256).unwrap();
                    }
                    _ => {
                        let end = (place + random() % 40).min(bytes.len());
                        bytes.drain(place..end);
                    }
                }
                if bytes.is_empty() {
                    bytes.push(b'\n');
                }
            }
            for (format, _, _) in Format::WORDS {
                let options = ReadOptions {
                    format: Some(format),
                    ..SKIP
                };
                let reader = Box::new(Cursor::new(bytes.clone()));
                if let Ok(mut source) = open_reader(reader, Path::new("x"), options)
                    && let Ok(trace) = read_all(&mut *source)
                {
                    for request in trace.requests {
                        let total: u64 = request.runs.iter().map(|run| run.bytes).sum();
                        assert_eq!(
                            total, request.bytes,
                            "seed {seed} of sample {number}: {request:?}"
                        );
                    }
                }
            }
        }
    }
}
