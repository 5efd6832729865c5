//! `--require LABEL:WORKLOAD>=RATIO`: what must hold for exit code 0.

use clap::ValueEnum;
use report::Comparison;

use super::workload::Workload;

/// A configuration must reach this part of the baseline's speed under a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Requirement {
    /// The configuration.
    pub label: String,
    /// The workload.
    pub workload: Workload,
    /// Smallest median of the ratios.
    pub ratio: f64,
}

impl Requirement {
    /// Parses the text after `--require`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no requirement; write for example tidegate:write-512k>=0.98");
        let (what, ratio) = text.split_once(">=").ok_or_else(wrong)?;
        let (label, workload) = what.split_once(':').ok_or_else(wrong)?;
        let ratio: f64 = ratio.trim().parse().map_err(|_| wrong())?;
        if !ratio.is_finite() || ratio <= 0.0 || label.is_empty() {
            return Err(wrong());
        }
        let workload = workload.trim();
        Ok(Self {
            label: label.to_owned(),
            workload: Workload::from_str(workload, false)
                .map_err(|_| format!("`{workload}` is no workload; see --workload"))?,
            ratio,
        })
    }

    /// What is not as required; `None` when it holds.
    pub fn violation(&self, comparisons: &[Comparison]) -> Option<String> {
        let name = self.workload.name();
        let comparison = comparisons.iter().find(|one| one.workload == name);
        match comparison.and_then(|one| one.ratio_of(&self.label)) {
            Some(ratio) if ratio >= self.ratio => None,
            Some(ratio) => Some(format!(
                "required: {} reaches {} of the baseline in {name}; measured: {ratio:.3}",
                self.label, self.ratio
            )),
            None => Some(format!(
                "required: {} reaches {} of the baseline in {name}; it was not measured",
                self.label, self.ratio
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_requirement_names_configuration_workload_and_ratio() {
        let requirement = Requirement::parse("tidegate:write-512k>=0.98").unwrap();
        assert_eq!(requirement.label, "tidegate");
        assert_eq!(requirement.workload, Workload::Write512k);
        assert_eq!(requirement.ratio, 0.98);
        for text in [
            "",
            "tidegate",
            "tidegate:write-512k",
            "a:write-512k>=x",
            "a:turbo>=1",
            ":write-4k>=1",
            "a:write-4k>=0",
            "a:write-4k>=inf",
        ] {
            Requirement::parse(text).expect_err(text);
        }
    }

    #[test]
    fn what_was_not_measured_is_not_met() {
        let requirement = Requirement::parse("tidegate:write-512k>=0.98").unwrap();
        assert!(requirement.violation(&[]).unwrap().contains("not measured"));
    }
}
