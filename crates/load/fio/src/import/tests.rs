use super::*;
use jobs::SettingValue;

fn taken(text: &str) -> Imported {
    import("j.fio", text).expect(text)
}

fn refused(text: &str) -> String {
    import("j.fio", text).expect_err(text).to_string()
}

fn step_of(options: &str) -> Step {
    taken(&format!("[j]\nsize=1m\n{options}")).job.steps.remove(0)
}

fn treatment(imported: &Imported, key: &str) -> Option<Treatment> {
    let note = imported.notes.iter().find(|note| note.key == key)?;
    Some(note.treatment)
}

#[test]
fn a_plain_section_has_fios_defaults() {
    let step = step_of("");
    for (key, expected) in [
        ("pattern", "sequential-read"),
        ("record", "4096"),
        ("size", "1048576"),
        ("threads", "1"),
        ("mode", "buffered"),
        ("cache", "cold"),
        ("advice", "sequential"),
        ("data", "random"),
    ] {
        assert_eq!(step.text(key), Some(expected), "{key}");
    }
    assert_eq!(step.text("final-sync"), None);
}

#[test]
fn directions_and_their_mix_become_patterns() {
    for (options, pattern) in [
        ("rw=write", "sequential-write"),
        ("rw=randread", "random-read"),
        ("readwrite=randwrite", "random-write"),
        ("rw=randrw\nrwmixread=70", "mixed:70"),
        ("rw=randrw\nrwmixwrite=80", "mixed:20"),
        ("rw=rw", "sequential-mixed:50"),
        ("rw=readwrite\nrwmixread=100", "sequential-mixed:100"),
    ] {
        assert_eq!(step_of(options).text("pattern"), Some(pattern), "{options}");
    }
}

#[test]
fn ways_to_write_become_modes() {
    for (options, mode) in [
        ("direct=1", "direct"),
        ("buffered=0", "direct"),
        ("sync=1", "sync"),
        ("sync=dsync", "dsync"),
        ("direct=1\nsync=1", "direct-sync"),
        ("direct=1\nsync=dsync", "direct-dsync"),
        ("direct=1\nfsync=1", "direct-fsync"),
        ("direct=1\nfdatasync=1", "direct-fdatasync"),
        ("fsync=1", "fsync"),
        ("fdatasync=1", "fdatasync"),
        ("ioengine=mmap", "mmap"),
        ("ioengine=mmap\nfsync=1", "mmap-sync"),
        ("fsync=0", "buffered"),
    ] {
        assert_eq!(
            step_of(&format!("rw=write\n{options}")).text("mode"),
            Some(mode),
            "{options}"
        );
    }
    assert_eq!(
        step_of("rw=read\nfsync=1").text("mode"),
        Some("buffered"),
        "reads sync nothing"
    );
}

#[test]
fn asynchronous_engines_become_a_ring_of_that_depth() {
    for engine in ["io_uring", "libaio"] {
        let step = step_of(&format!("ioengine={engine}\niodepth=16"));
        assert_eq!(
            (step.text("engine"), step.text("depth")),
            (Some("io_uring"), Some("16"))
        );
    }
    let imported = taken("[j]\nsize=1m\nioengine=libaio\n");
    assert_eq!(treatment(&imported, "ioengine"), Some(Treatment::Approximated));
    let imported = taken("[j]\nsize=1m\nioengine=psync\niodepth=8\n");
    assert_eq!(treatment(&imported, "iodepth"), Some(Treatment::Ignored));
}

#[test]
fn a_limit_of_each_job_is_one_of_all_threads() {
    let step = step_of("numjobs=4\nrate=1m\n");
    assert_eq!(
        (step.text("threads"), step.text("rate")),
        (Some("4"), Some("4194304"))
    );
    assert_eq!(step_of("numjobs=3\nrate_iops=100").text("iops"), Some("300"));
}

#[test]
fn times_are_taken_in_their_units() {
    let step = step_of("runtime=2m\ntime_based\nramp_time=500ms\nthinktime=250");
    assert_eq!(step.text("runtime"), Some("120s"));
    assert_eq!(step.text("ramp"), Some("500000us"));
    assert_eq!(step.text("think"), Some("250us"));
    let imported = taken("[j]\nsize=1m\nruntime=2\n");
    assert_eq!(treatment(&imported, "runtime"), Some(Treatment::Approximated));
}

#[test]
fn syncs_at_the_end_are_timed_as_fio_times_them() {
    assert_eq!(step_of("rw=write\nend_fsync=1").text("final-sync"), Some("timed"));
    assert_eq!(
        step_of("rw=write\nfsync_on_close=1").text("final-sync"),
        Some("untimed")
    );
    assert_eq!(step_of("rw=read\nend_fsync=1").text("final-sync"), None);
}

#[test]
fn cache_advice_order_and_data_are_taken() {
    let step = step_of("rw=randwrite\ninvalidate=0\nfadvise_hint=0\nnorandommap\nzero_buffers\noverwrite=1");
    assert_eq!(step.text("cache"), Some("as-is"));
    assert_eq!(step.text("advice"), Some("none"));
    assert_eq!(step.text("order"), Some("with-replacement"));
    assert_eq!(step.text("data"), Some("zero"));
    let overwrite = step.settings.iter().find(|setting| setting.key == "overwrite");
    assert_eq!(
        overwrite.map(|setting| &setting.value),
        Some(&SettingValue::Switch(true))
    );
    assert_eq!(step_of("rw=read\npre_read=1").text("cache"), Some("reopened"));
    let step = step_of("rw=randread\nbuffer_compress_percentage=40");
    assert_eq!(
        (step.text("advice"), step.text("data")),
        (Some("random"), Some("compressible:40"))
    );
}

#[test]
fn a_size_may_be_a_share_of_the_file_size() {
    let imported = taken("[j]\nfilesize=1m\nsize=50%\n");
    assert_eq!(imported.job.steps[0].text("size"), Some("524288"));
    assert!(refused("[j]\nsize=50%\n").contains("give filesize in bytes"));
    assert!(refused("[j]\nrw=read\n").contains("[j] size is not supported: it needs to be given"));
}

#[test]
fn directory_and_seed_are_handed_out() {
    let imported = taken("[global]\ndirectory=/data/x\nsize=1m\nrandseed=7\n[a]\n[b]\nstonewall\n");
    assert_eq!(
        (imported.directory.as_deref(), imported.seed),
        (Some("/data/x"), Some(7))
    );
    let groups: Vec<usize> = imported.job.steps.iter().map(|step| step.group).collect();
    assert_eq!(groups, [0, 1]);
    let imported = taken("[a]\nsize=1m\nfilename=/data/y/file\n");
    assert_eq!(imported.directory.as_deref(), Some("/data/y"));
}

#[test]
fn sections_run_together_up_to_a_stonewall() {
    let imported = taken("[global]\nsize=1m\n[a]\n[b]\n[c]\nstonewall\n[d]\n[e]\nstonewall\n");
    let groups: Vec<usize> = imported.job.steps.iter().map(|step| step.group).collect();
    assert_eq!(groups, [0, 0, 1, 1, 2]);
}

#[test]
fn passes_and_syncs_after_several_writes_are_taken() {
    let step = step_of("rw=write\nfsync=32\nloops=3");
    assert_eq!(step.text("mode"), Some("fsync"));
    assert_eq!(step.text("sync-every"), Some("32"));
    assert_eq!(step.text("passes"), Some("3"));
    let step = step_of("rw=randwrite\nfdatasync=2");
    assert_eq!(
        (step.text("mode"), step.text("sync-every")),
        (Some("fdatasync"), Some("2"))
    );
    let step = step_of("rw=read\nnrfiles=4\nfile_service_type=sequential");
    assert_eq!(step.text("files"), Some("4"));
    assert!(refused("[j]\nsize=1m\nnrfiles=4\n").contains("in turns"));
    let step = step_of("rw=read\nfsync=32\nloops=1");
    assert_eq!(
        (step.text("mode"), step.text("sync-every")),
        (Some("buffered"), None)
    );
    assert_eq!(step.text("passes"), None);
}

#[test]
fn sections_of_one_name_become_steps_of_several() {
    let imported = taken("[global]\nsize=1m\n[a]\n[a]\nstonewall\n");
    let names: Vec<&str> = imported.job.steps.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(names, ["a", "a-2"]);
}

#[test]
fn what_is_not_supported_is_named_with_section_line_and_what_it_needs() {
    for (text, expected) in [
        (
            "[j]\nsize=1m\nbssplit=4k/50\n",
            "j.fio:3: [j] bssplit=4k/50 is not supported: it needs records of several sizes",
        ),
        (
            "[j]\nsize=1m\nrw=trim\n",
            "j.fio:3: [j] rw=trim is not supported: it needs discards",
        ),
        (
            "[j]\nsize=1m\nioengine=rbd\n",
            "j.fio:3: [j] ioengine=rbd is not supported: it needs an engine",
        ),
        (
            "[j]\nsize=1m\nrw=write\nfsync=3\nfdatasync=2\n",
            "j.fio:5: [j] fdatasync=2 is not supported",
        ),
        (
            "[j]\nsize=1m\nfrobnicate\n",
            "j.fio:3: [j] frobnicate is not supported",
        ),
        (
            "[j]\nsize=1m\nfilename=/dev/sda\n",
            "j.fio:3: [j] filename=/dev/sda is not supported",
        ),
        (
            "[j]\nsize=1m\nloops=3\nruntime=1\n",
            "j.fio:3: [j] loops=3 is not supported",
        ),
        (
            "[j]\nsize=1q\n",
            "j.fio:2: [j] size=1q: expected a size such as 4k",
        ),
        (
            "[j]\nsize=1m\ndirect=maybe\n",
            "j.fio:3: [j] direct=maybe: expected 0 or 1",
        ),
    ] {
        let message = refused(text);
        assert!(message.starts_with(expected), "{message}");
    }
}

#[test]
fn every_option_that_is_written_down_gets_a_note() {
    let text = "[global]\nthread\ngroup_reporting\nsize=1m\n[j]\nrw=randread\nioengine=libaio\niodepth=4\n";
    let imported = taken(text);
    for (key, expected) in [
        ("thread", Treatment::Ignored),
        ("group_reporting", Treatment::Ignored),
        ("size", Treatment::Taken),
        ("iodepth", Treatment::Taken),
        ("ioengine", Treatment::Approximated),
    ] {
        assert_eq!(treatment(&imported, key), Some(expected), "{key}");
    }
}
