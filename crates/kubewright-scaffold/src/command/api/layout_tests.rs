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
            let mut foreign = CreateWebhook::new("apps", "v1".parse().unwrap(), api.kind.clone());
            (foreign.defaulting, foreign.validation) = (true, true);
            let project = Project::read(&files["PROJECT"]).unwrap();
            change(&mut files, |plan| foreign.plan(&project, plan).unwrap());
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

/// A test module, or the function of a scenario, may have the name of the crate.
#[test]
fn tests_name_the_crate_by_its_full_path() {
    let mut files = BTreeMap::new();
    change(&mut files, |plan| Init::new("order".parse().unwrap()).plan(plan).unwrap());
    let group = || Some("shop".parse().unwrap());
    for version in ["v1", "v2"] {
        let mut api = CreateApi::new(group(), version.parse().unwrap(), "Order".parse().unwrap());
        api.controller = version == "v1";
        let project = Project::read(&files["PROJECT"]).unwrap();
        change(&mut files, |plan| api.plan(&project, plan).unwrap());
    }
    let mut webhook = CreateWebhook::new("shop", "v1".parse().unwrap(), "Order".parse().unwrap());
    (webhook.defaulting, webhook.validation) = (true, true);
    (webhook.conversion, webhook.spokes) = (true, vec!["v2".parse().unwrap()]);
    let mut foreign = CreateWebhook::new("apps", "v1".parse().unwrap(), "Deployment".parse().unwrap());
    (foreign.defaulting, foreign.validation) = (true, true);
    for webhook in [webhook, foreign] {
        let project = Project::read(&files["PROJECT"]).unwrap();
        change(&mut files, |plan| webhook.plan(&project, plan).unwrap());
    }
    assert!(files["tests/it/main.rs"].contains("mod order;"));
    assert!(files["tests/it/order_simulation.rs"].contains("async fn order("));
    let tests = files.iter().filter(|(path, _)| path.starts_with("tests/"));
    let lines = tests.flat_map(|(path, text)| text.lines().map(move |line| (path, line)));
    let paths: Vec<_> = lines.filter(|(_, line)| line.contains("order::")).collect();
    // The controller's test, three files of webhooks' tests, those of a foreign kind, the scenario, and `start`.
    assert!(paths.len() >= 9, "{paths:?}");
    for (path, line) in paths {
        let is_global = line.match_indices("order::").all(|(at, _)| line[..at].ends_with("::"));
        assert!(is_global, "{path}: {line}");
    }
}

#[test]
fn comments_about_kinds_without_a_group_are_complete() {
    for is_multigroup in [false, true] {
        let mut files = BTreeMap::new();
        let mut init = Init::new("maps".parse().unwrap());
        init.multigroup = is_multigroup;
        change(&mut files, |plan| init.plan(plan).unwrap());
        let kind: Kind = "ConfigMap".parse().unwrap();
        let mut api = CreateApi::new(Some("core".parse().unwrap()), "v1".parse().unwrap(), kind.clone());
        api.resource = false;
        let project = Project::read(&files["PROJECT"]).unwrap();
        change(&mut files, |plan| api.plan(&project, plan).unwrap());
        let mut webhook = CreateWebhook::new("core", "v1".parse().unwrap(), kind);
        webhook.validation = true;
        let project = Project::read(&files["PROJECT"]).unwrap();
        change(&mut files, |plan| webhook.plan(&project, plan).unwrap());
        let folder = if is_multigroup { "core/" } else { "" };
        assert!(files[&format!("src/webhook/{folder}v1/mod.rs")].starts_with("//! The webhooks of version `v1`,"));
        // A controller doesn't own objects of the kind that it reconciles.
        let controller = &files[&format!("src/controller/{folder}configmap.rs")];
        assert!(controller.contains("with `.owns::<Secret>()`"), "{controller}");
        if is_multigroup {
            assert!(files["src/webhook/core/mod.rs"].contains("of the group `core`"));
            assert!(files["src/controller/core/mod.rs"].contains("of the group `core`"));
        }
    }
}
