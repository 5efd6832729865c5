//! The native form: everything written is read again, interrupted writers leave their rows, and damage is reported.
#![cfg(feature = "native")]
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod damage;
mod interrupted;
mod others;
mod sample;
mod scan;
mod stored;

use std::fs;
use std::path::{Path, PathBuf};

use formats::native::{Existing, NativeReader, NativeWriteError, NativeWriter, TraceId, columns, schema};
use formats::{MemorySource, TraceItem, TraceSource};
use results::block_trace::BlockTrace;

use sample::{full_request, header, read, sample, write};

#[test]
fn what_is_written_is_read_again_to_the_last_field() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    // More than one batch of rows.
    let trace = sample(20_000);
    write(&trace, &path);
    assert_eq!(read(&path), trace);
    assert_eq!(read(&path.join("runs.parquet")), trace, "a table names its trace");
    let reader = NativeReader::open(&path).unwrap();
    assert_eq!(reader.stored_header().counts, reader.counts());
    assert_eq!(reader.counts().requests, 20_000);
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        1,
        "nothing partial is left"
    );
}

#[test]
fn a_trace_without_anything_in_it_is_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty.trace");
    let trace = BlockTrace {
        events: Vec::new(),
        ..sample(0)
    };
    write(&trace, &path);
    assert_eq!(read(&path), trace);
}

#[test]
fn events_stand_among_the_requests_by_their_times() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    let trace = sample(2);
    write(&trace, &path);
    let mut kinds = [Vec::new(), Vec::new()];
    let mut native = NativeReader::open(&path).unwrap();
    let mut memory = MemorySource::new(trace);
    let sources: [&mut dyn TraceSource; 2] = [&mut native, &mut memory];
    for (source, kinds) in sources.into_iter().zip(&mut kinds) {
        while let Some(item) = source.next_item().unwrap() {
            kinds.push(matches!(item, TraceItem::Event(_)));
        }
    }
    assert_eq!(kinds[0], [true, false, false, true]);
    assert_eq!(kinds[0], kinds[1]);
}

#[test]
fn an_existing_trace_is_replaced_only_when_asked_and_nothing_else_ever() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    write(&sample(5), &path);
    let create =
        |path: &Path, existing| NativeWriter::create(path, TraceId::from_text("t"), &header(), existing);
    assert!(matches!(
        create(&path, Existing::Refuse),
        Err(NativeWriteError::Exists { .. })
    ));
    assert_eq!(read(&path).requests.len(), 5);
    // With a trailing slash, as shells complete folder names.
    let with_slash = PathBuf::from(format!("{}/", path.display()));
    create(&with_slash, Existing::Replace)
        .unwrap()
        .finish(&header())
        .unwrap();
    assert_eq!(read(&path).requests.len(), 0);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);

    let other = folder.path().join("photos");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("cat.jpg"), "cat").unwrap();
    let refused = create(&other, Existing::Replace).unwrap_err();
    assert!(
        refused.to_string().contains("is no trace and is not replaced"),
        "{refused}"
    );
    assert!(other.join("cat.jpg").exists());
}

#[test]
fn a_number_too_large_refuses_its_request_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    let mut writer =
        NativeWriter::create(&path, TraceId::from_text("t"), &header(), Existing::Refuse).unwrap();
    let mut huge = full_request(0);
    huge.runs[1].file_offset = Some(u64::MAX);
    let error = writer.request(&huge).unwrap_err();
    assert_eq!(
        error.to_string(),
        "request 0: file_offset is 18446744073709551615, expected at most 9223372036854775807"
    );
    let mut far = full_request(0);
    far.sector = 1 << 53;
    let error = writer.request(&far).unwrap_err().to_string();
    assert_eq!(
        error, "request 0: sector is 9007199254740992, expected at most 9007199254740991",
        "its place in bytes must fit a query's numbers"
    );
    writer.request(&full_request(1)).unwrap();
    let order = writer.request(&full_request(1)).unwrap_err();
    assert!(matches!(order, NativeWriteError::Order { id: 1, last: 1 }));
    writer.finish(&header()).unwrap();
    assert_eq!(read(&path).requests, [full_request(1)]);
}

#[test]
fn the_document_lists_the_columns_as_they_are() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/formats/block-trace.md");
    let document = fs::read_to_string(document).unwrap();
    let documented: Vec<[&str; 3]> = document
        .lines()
        .filter(|line| line.starts_with("| `"))
        .filter_map(|line| {
            let mut cells = line.split('|').map(str::trim).skip(1);
            Some([cells.next()?.trim_matches('`'), cells.next()?, cells.next()?])
        })
        .filter(|[_, _, presence]| ["yes", ""].contains(presence))
        .filter(|[_, kind, _]| ["boolean", "int32", "int64", "text"].contains(kind))
        .collect();
    let all = columns::REQUEST_COLUMNS
        .iter()
        .chain(&columns::RUN_COLUMNS)
        .chain(&columns::EVENT_COLUMNS);
    let real: Vec<[&str; 3]> = all
        .map(|column| {
            let kind = match column.kind {
                schema::ColumnKind::Boolean => "boolean",
                schema::ColumnKind::Int32 => "int32",
                schema::ColumnKind::Int64 => "int64",
                schema::ColumnKind::Text => "text",
            };
            let presence = match column.presence {
                schema::Presence::Always => "yes",
                schema::Presence::WhereKnown => "",
            };
            [column.name, kind, presence]
        })
        .collect();
    assert_eq!(documented, real);
}
