//! `trapline bench` measures what it says: here one round of one workload.

use serde_json::Value;
use std::process::Command;
use std::time::Duration;
use trapline_tests::{qemu, trapline, within};

const LIMIT: Duration = Duration::from_secs(900);

#[test]
fn every_configuration_is_measured_against_unpatched_qemu() {
    for analyzer in ["plain", "empty", "trace"] {
        qemu("x86_64", analyzer);
    }
    let args = ["bench", "--target", "x86_64", "--rounds", "1", "--workload", "matrix", "--format", "json"];
    let f = within(LIMIT, Command::new(trapline()).args(args)).code(0);
    let v: Value = serde_json::from_str(&f.out()).expect("JSON");
    let rows = v["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|r| r["configuration"].as_str().unwrap()).collect();
    let consumed = ["fetch", "fetch+mem", "fetch+mem+values"];
    let recorded = consumed.map(|c| format!("{c}, recorded"));
    let mut all = vec!["unpatched", "nothing filled in", "stopped"];
    all.extend(consumed);
    all.extend(recorded.iter().map(String::as_str));
    all.extend(["plugin, fetch+mem", "call per instruction"]);
    assert_eq!(names, all);
    assert_eq!(rows[0]["ratio"], 1.0);
    for r in rows {
        let (seconds, ratio) = (r["seconds"].as_f64().unwrap(), r["ratio"].as_f64().unwrap());
        assert!(seconds > 0.0 && ratio > 0.1, "{r}");
        assert!((seconds / rows[0]["seconds"].as_f64().unwrap() - ratio).abs() < 1e-6, "{r}");
    }
    assert_eq!(v["means"].as_array().unwrap().len(), all.len());
}

#[test]
fn workloads_and_targets_that_are_none_are_refused() {
    for (args, parts) in [
        (&["bench", "--workload", "nosuch"][..], &["nosuch", "interpreter", "memory"][..]),
        (&["bench", "--configuration", "nosuch"][..], &["nosuch", "'fetch, recorded'"][..]),
        (&["bench", "--target", "nosuch"][..], &["nosuch"][..]),
        (&["bench", "--rounds", "0"][..], &["0", "1"][..]),
    ] {
        let f = within(LIMIT, Command::new(trapline()).args(args)).code(125);
        for part in parts {
            assert!(f.err().contains(part), "'{part}' is not said: {}", f.err());
        }
    }
}
