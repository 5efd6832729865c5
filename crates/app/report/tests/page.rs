//! The whole page: structure, self-containment, and unusual input.

use report::{LadderRow, LadderStep, ReportInput, ladder, render};
use results::Estimate;

mod sample;

fn empty() -> ReportInput {
    ReportInput {
        title: "t".to_owned(),
        subtitle: String::new(),
        records: Vec::new(),
        ladder: Vec::new(),
        notes: Vec::new(),
    }
}

/// Checks that every element is closed in order; returns the texts of the headings.
fn headings(page: &str) -> Vec<String> {
    let (mut open, mut headings): (Vec<&str>, Vec<String>) = (Vec::new(), Vec::new());
    let body = page
        .strip_prefix("<!DOCTYPE html>\n")
        .expect("the page says that it is HTML");
    for part in body.split('<').skip(1) {
        let (tag, text) = part.split_once('>').expect("each tag ends");
        let name = tag
            .split([' ', '/'])
            .find(|name| !name.is_empty())
            .expect("each tag has a name");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "closed out of order near `{part}`");
        } else if !tag.ends_with('/') && name != "meta" {
            open.push(name);
        }
        if !tag.starts_with('/') && ["h1", "h2", "h3"].contains(&name) {
            headings.push(text.trim().to_owned());
        }
    }
    assert!(open.is_empty(), "not closed: {open:?}");
    headings
}

#[test]
fn the_page_has_its_sections_in_order_and_well_formed() {
    let found = headings(&render(&sample::input()));
    let expected = [
        "How much of the native file system is left",
        "Throughput",
        "Writes that reach the file system below",
        "Numbers",
        "Notes",
        "Environment",
        "File systems under test",
        "Raw samples",
        "Counters",
        "Run it again",
    ];
    assert_eq!(found, expected);
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    assert_eq!(render(&sample::input()), render(&sample::input()));
}

#[test]
fn the_page_needs_nothing_from_outside() {
    let page = render(&sample::input());
    for reference in [
        "http:", "https:", "<script", "<link", "<img", "url(", "@import", "src=",
    ] {
        assert!(
            !page.contains(reference),
            "the page refers to the outside by `{reference}`"
        );
    }
}

#[test]
fn the_headline_names_the_best_and_the_worst_step() {
    let page = render(&sample::input());
    assert!(page.contains("tuned reaches 0.99 of native throughput; FUSE 4 KiB reaches 0.05."));
}

#[test]
fn the_command_can_be_copied_into_a_shell() {
    let page = render(&sample::input());
    assert!(page.contains("<pre>tidegate demo --rounds 3 &#39;/srv/with blank&#39;</pre>"));
}

#[test]
fn an_empty_input_is_a_page_that_says_so() {
    let page = render(&empty());
    assert_eq!(headings(&page), ["t", "Throughput", "Environment", "Raw samples"]);
    assert!(page.contains("No comparison was made.") && page.contains("No run was recorded."));
}

#[test]
fn one_sample_of_one_configuration_is_enough() {
    let mut input = sample::input();
    input.records.truncate(1);
    let step = LadderStep {
        group: String::new(),
        run_label: "native".to_owned(),
        label: "native".to_owned(),
        description: String::new(),
    };
    input.ladder = vec![LadderRow::from_records(&input.records, "native", &step)];
    assert_eq!(input.ladder[0].ratio_to_native(), Some(1.0));
    let page = render(&input);
    headings(&page);
    assert!(page.contains("median of 1 round;"));
}

#[test]
fn numbers_that_are_not_finite_never_appear() {
    let mut input = sample::input();
    input.ladder[1].mb_per_s = vec![f64::NAN, f64::INFINITY];
    input.ladder[1].ratio = input.ladder[1].ratio.map(|ratio| Estimate {
        value: f64::NAN,
        ..ratio
    });
    input.ladder[2].mb_per_s = Vec::new();
    input.ladder[2].backing_writes = Some(f64::NAN);
    input.ladder[3].mb_per_s = vec![0.0, 0.0];
    input.ladder[3].backing_writes = Some(0.0);
    input.ladder[4].cpu_active_percent = Some(f64::NAN);
    input.records[0]
        .counters
        .insert("odd_percent".to_owned(), f64::NAN);
    input.records[0].samples[0].elapsed_ns = 0;
    let page = render(&input);
    headings(&page);
    for word in ["NaN", ">inf", "-inf", "=\"inf"] {
        assert!(!page.contains(word), "the page shows `{word}`");
    }
}

#[test]
fn every_text_from_outside_is_escaped() {
    let hostile = "\"'><script>alert(1)</script>&";
    let mut input = sample::input();
    input.title = hostile.to_owned();
    input.subtitle = hostile.to_owned();
    input.notes = vec![hostile.to_owned()];
    for row in &mut input.ladder {
        row.group = hostile.to_owned();
        row.label = hostile.to_owned();
        row.description = hostile.to_owned();
    }
    for record in &mut input.records {
        record.label = hostile.to_owned();
        record.command = vec![hostile.to_owned()];
        record.tool_version = hostile.to_owned();
        record.host.kernel = hostile.to_owned();
        record.host.processor = Some(hostile.to_owned());
        record.target.path = hostile.to_owned();
        record.target.mount_options = Some(hostile.to_owned());
        record.samples[0].operation = hostile.to_owned();
        record.counters.insert(hostile.to_owned(), 1.0);
    }
    let page = render(&input);
    headings(&page);
    assert!(!page.contains("<script"), "a script got in");
    assert!(!page.contains("'>"), "a quote got in");
}

#[test]
fn incomplete_runs_are_listed_and_not_compared() {
    let mut input = sample::input();
    input.records[0].complete = false;
    let step = LadderStep {
        group: String::new(),
        run_label: "native".to_owned(),
        label: "native".to_owned(),
        description: String::new(),
    };
    let row = LadderRow::from_records(&input.records, "native", &step);
    assert_eq!(row.mb_per_s.len(), 2);
    assert!(render(&input).contains("no, stopped early"));
}

/// The three rounds have ratios whose median is not the ratio of the medians.
#[test]
fn the_bar_drawn_is_the_ratio_claimed() {
    let mut input = sample::input();
    let row = &mut input.ladder[4];
    row.mb_per_s = vec![878.0, 878.0, 878.0];
    row.ratios = vec![1.1, 1.13, 1.2];
    row.ratio = row.ratio.map(|ratio| Estimate { value: 1.13, ..ratio });
    let chart = ladder::throughput_chart(&input.ladder);
    let bar = &chart.groups[0].bars[4];
    assert_eq!(bar.value, Some(1.13));
    assert_eq!(bar.samples, [1.1, 1.13, 1.2]);
    assert_eq!(bar.annotation[0], "1.13×");
    assert_eq!(chart.groups[0].reference, Some(1.0));
}

#[test]
fn the_terminal_table_is_aligned() {
    let expected = "\
configuration  MB/s    min–max  of native [min, max]  backing writes  context switches  CPU active %
-------------  ----  ---------  --------------------  --------------  ----------------  ------------
native          455    431–462                  1.00               –             4,200          61.5
FUSE 4 KiB     22.0  21.0–24.0     0.05 [0.05, 0.05]         131,072           279,451          61.5
";
    let found = ladder::text_table(&sample::input().ladder);
    assert!(found.starts_with(expected), "found:\n{found}");
    assert_eq!(found.lines().count(), 7);
}
