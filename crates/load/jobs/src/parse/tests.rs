use super::*;
use crate::Key;

fn vocabulary() -> Vocabulary {
    let kind = |name: &str, keys: &[(&str, KeyForm)]| StepKind {
        name: name.to_owned(),
        keys: keys
            .iter()
            .map(|(name, form)| Key {
                name: (*name).to_owned(),
                form: *form,
            })
            .collect(),
    };
    Vocabulary {
        kinds: vec![
            kind(
                "file",
                &[
                    ("record", KeyForm::Value),
                    ("threads", KeyForm::Value),
                    ("overwrite", KeyForm::Switch),
                ],
            ),
            kind(
                "replay",
                &[("script", KeyForm::Positional), ("threads", KeyForm::Value)],
            ),
        ],
    }
}

fn parsed(text: &str) -> Result<Job, JobError> {
    Job::parse("j.toml", text, &vocabulary())
}

fn refused(text: &str) -> String {
    parsed(text).expect_err(text).to_string()
}

const STEP: &str = "name = \"x\"\n[[step]]\nkind = \"file\"\n";

#[test]
fn a_step_becomes_the_words_of_its_command() {
    let job = parsed(
        "name = \"x\"\n[[step]]\nkind = \"file\"\nrecord = \"4k\"\nthreads = 8\noverwrite = true\n\
         [[step]]\nkind = \"replay\"\nscript = \"a.log\"\nthreads = 2\n",
    )
    .unwrap();
    assert_eq!(
        job.steps[0].words(&vocabulary(), "/d"),
        ["file", "--record=4k", "--threads=8", "--overwrite", "--", "/d"]
    );
    assert_eq!(
        job.steps[1].words(&vocabulary(), "/d"),
        ["replay", "--threads=2", "--", "a.log", "/d"]
    );
}

#[test]
fn a_step_wins_over_its_kinds_defaults_and_those_over_the_general_ones() {
    let job = parsed(
        "name = \"x\"\n[defaults]\nthreads = 1\nscript = \"g\"\n[defaults.file]\nthreads = 2\nrecord = \"1k\"\n\
         [[step]]\nkind = \"file\"\nrecord = \"4k\"\n[[step]]\nkind = \"replay\"\n",
    )
    .unwrap();
    assert_eq!(job.steps[0].text("threads"), Some("2"));
    assert_eq!(job.steps[0].text("record"), Some("4k"));
    assert_eq!(job.steps[0].text("script"), None, "the kind does not know it");
    assert_eq!(job.steps[1].text("threads"), Some("1"));
    assert_eq!(job.steps[1].text("script"), Some("g"));
}

#[test]
fn an_unknown_key_is_named_with_file_line_and_the_nearest_known_one() {
    assert_eq!(
        refused(&format!("{STEP}recrod = \"4k\"\n")),
        "j.toml:4: `recrod` is no key of kind file; did you mean `record`?"
    );
    assert_eq!(
        refused(&format!("{STEP}colour = 1\n")),
        "j.toml:4: `colour` is no key of kind file; expected one of record, threads, overwrite"
    );
    assert_eq!(
        refused("name = \"x\"\ndefault = 1\n"),
        "j.toml:2: `default` is no key of a job; did you mean `defaults`?"
    );
    assert_eq!(
        refused("name = \"x\"\n[defaults]\n\nthread = 1\n"),
        "j.toml:4: `thread` is no key of any kind of step; did you mean `threads`?"
    );
    assert_eq!(
        refused("name = \"x\"\n[[step]]\nkind = \"fiel\"\n"),
        "j.toml:3: `fiel` is no kind of step; did you mean `file`?"
    );
    assert!(refused("name = \"x\"\n[defaults.file]\nscript = \"a\"\n").starts_with("j.toml:3: `script`"));
}

#[test]
fn a_value_of_the_wrong_form_is_named_with_its_line() {
    assert_eq!(
        refused(&format!("{STEP}overwrite = \"yes\"\n")),
        "j.toml:4: `overwrite` is the text \"yes\", expected true or false"
    );
    assert_eq!(
        refused(&format!("{STEP}record = true\n")),
        "j.toml:4: `record` is of type boolean, expected a text or a number"
    );
    assert!(refused("name = \"x\"\nstep = 1\n").starts_with("j.toml:2: `step` is of type integer"));
}

#[test]
fn what_is_missing_or_twice_there_is_named() {
    assert!(refused("[[step]]\nkind = \"file\"\n").contains("the job has no `name`"));
    assert!(refused("name = \"x\"\n").contains("has no `step`"));
    assert!(
        refused("name = \"x\"\n[[step]]\nname = \"a\"\n").starts_with("j.toml:2: the step has no `kind`")
    );
    let twice = format!("{STEP}[[step]]\nkind = \"file\"\n");
    assert!(refused(&twice).starts_with("j.toml:4: a step called `file` is in line 2 already"));
    assert!(refused("name = \"x\"\nname = \"y\"\n").starts_with("j.toml:2: no TOML: "));
    assert!(refused("name = \n").starts_with("j.toml:1: no TOML: "));
}

#[test]
fn a_selection_keeps_the_order_of_the_job_and_knows_its_steps() {
    let text = "name = \"x\"\n[[step]]\nname = \"a\"\nkind = \"file\"\n[[step]]\nname = \"b\"\nkind = \"replay\"\n\
                [[step]]\nname = \"c\"\nkind = \"file\"\n";
    let names = |job: Job| job.steps.into_iter().map(|step| step.name).collect::<Vec<_>>();
    let select = |kinds: &[&str], steps: &[&str]| {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        parsed(text).unwrap().select(&owned(kinds), &owned(steps))
    };
    assert_eq!(names(select(&["file"], &[]).unwrap()), ["a", "c"]);
    assert_eq!(names(select(&[], &["c", "b"]).unwrap()), ["b", "c"]);
    assert!(matches!(
        select(&["replay"], &["a"]),
        Err(JobError::NoStepLeft { .. })
    ));
    let message = select(&[], &["d"]).unwrap_err().to_string();
    assert_eq!(message, "the job `x` has no step `d`; its steps are a, b, c");
}
