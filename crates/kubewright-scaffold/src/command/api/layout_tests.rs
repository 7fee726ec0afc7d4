//! Tests that generated code is formatted like rustfmt's output, for names of all lengths.

use std::{collections::BTreeMap, fs, process::Command};

use crate::{
    command::{CreateApi, CreateWebhook, Init},
    name::Kind,
    plan::Plan,
    project::Project,
};

/// Plans changes of files in memory, and applies them.
fn change(files: &mut BTreeMap<String, String>, plan: impl FnOnce(&mut Plan<'_>)) {
    let before = files.clone();
    let mut planned = Plan::new(&before);
    plan(&mut planned);
    for change in planned.finish().unwrap() {
        files.insert(change.path, change.after.unwrap_or_default());
    }
}

#[test]
fn generated_code_is_formatted() {
    for (name, group, is_multigroup) in [("a", "b", false), ("an-operator-of-some-length", "sea-creatures.deep", true)]
    {
        let mut files = BTreeMap::new();
        let mut init = Init::new(name.parse().unwrap());
        (init.multigroup, init.owner) = (is_multigroup, Some("Jane".into()));
        change(&mut files, |plan| init.plan(plan).unwrap());
        // The lengths around each line break. With longer names, some lines exceed the width in rustfmt as well.
        let lengths = [1, 2, 4, 5, 12, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 40, 41, 44, 45, 46];
        for length in lengths.into_iter().filter(|length| !is_multigroup || *length < 44) {
            let kind: Kind = format!("K{}", "o".repeat(length - 1)).parse().unwrap();
            let mut api = CreateApi::new(Some(group.parse().unwrap()), "v1".parse().unwrap(), kind);
            let project = Project::read(&files["PROJECT"]).unwrap();
            change(&mut files, |plan| api.plan(&project, plan).unwrap());
            let mut webhook = CreateWebhook::new(group, "v1".parse().unwrap(), api.kind.clone());
            (webhook.defaulting, webhook.validation) = (true, true);
            let project = Project::read(&files["PROJECT"]).unwrap();
            change(&mut files, |plan| webhook.plan(&project, plan).unwrap());
            (api.version, api.controller) = ("v2".parse().unwrap(), false);
            let project = Project::read(&files["PROJECT"]).unwrap();
            change(&mut files, |plan| api.plan(&project, plan).unwrap());
            // Each version is the hub in one of the cases.
            let (hub, spoke) = if length % 2 == 0 { ("v1", "v2") } else { ("v2", "v1") };
            let mut conversion = CreateWebhook::new(group, hub.parse().unwrap(), api.kind.clone());
            (conversion.conversion, conversion.spokes) = (true, vec![spoke.parse().unwrap()]);
            let project = Project::read(&files["PROJECT"]).unwrap();
            change(&mut files, |plan| conversion.plan(&project, plan).unwrap());
            (api.version, api.controller) = ("v1".parse().unwrap(), true);
            api.kind = format!("D{}", "o".repeat(length - 1)).parse().unwrap();
            (api.group, api.resource) = (Some("apps".parse().unwrap()), false);
            let project = Project::read(&files["PROJECT"]).unwrap();
            change(&mut files, |plan| api.plan(&project, plan).unwrap());
        }
        let folder = tempfile::tempdir().unwrap();
        let mut rustfmt = Command::new("rustfmt");
        rustfmt.args(["--check", "--edition", "2024"]);
        for (path, text) in files.iter().filter(|(path, _)| path.ends_with(".rs")) {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            rustfmt.arg(path);
        }
        let output = rustfmt.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}
