//! Errors have hints, and leave all files unchanged.

use std::fs;

use crate::folder::Folder;

/// Asserts that a command fails with some texts, and changes nothing.
#[track_caller]
fn refused(folder: &Folder, line: &str, says: &[&str]) {
    let before = folder.all();
    let output = folder.try_run(line);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(matches!(output.status.code(), Some(1 | 2)), "kubewright {line}: {:?} {stderr}", output.status);
    assert!(stderr.starts_with("error: "), "kubewright {line}: {stderr}");
    for words in says {
        assert!(stderr.contains(words), "kubewright {line}: {words:?} is not in {stderr}");
    }
    assert!(folder.all() == before, "kubewright {line} has changed something");
}

#[test]
fn invalid_names_are_errors() {
    let folder = Folder::new("ship");
    refused(&folder, "init --domain My.Domain", &["--domain", "try \"my.domain\""]);
    refused(&folder, "init --domain https://example.com/x", &["must be a domain name, not a URL"]);
    refused(
        &folder,
        "init --project-name kube",
        &["is a keyword or the name of a dependency", "try \"kube-operator\""],
    );
    refused(&folder, "init --repo a\"b", &["without spaces and quotes"]);
    refused(&folder, "init --license \"", &["an SPDX expression"]);
    refused(&folder, "init --sdk /nowhere", &["find --sdk /nowhere"]);
    refused(&folder, "init --sdk /", &["has no crates/kubewright"]);
    folder.run(concat!("init --sdk ", env!("CARGO_MANIFEST_DIR"), "/../.."));
    assert!(folder.read(".cargo/config.toml").contains("/crates/kubewright-cluster\" }\n"));
    let api = |rest: &str| format!("create api --resource --controller {rest}");
    refused(&folder, &api("--group crew --version 1 --kind Captain"), &["the version \"1\"", "try \"v1\""]);
    refused(
        &folder,
        &api("--group crew --version v1 --kind captain"),
        &["begin with a capital letter", "try \"Captain\""],
    );
    refused(&folder, &api("--group crew --version v1 --kind Käpt'n"), &["ASCII letters"]);
    refused(&folder, &api("--group crew --version v1 --kind Self"), &["choose another"]);
    refused(&folder, &api("--group crew --version v1 --kind Option"), &["choose another"]);
    refused(&folder, &api("--group Crew --version v1 --kind Captain"), &["try \"crew\""]);
    refused(&folder, &api("--group crew --version v1 --kind Captain --plural Captains"), &["try \"captains\""]);
    refused(&folder, &api("--group crew --kind Captain"), &["--version"]);
    refused(&folder, &api("--group crew --version v1 --kind Captain --namespaced=maybe"), &["--namespaced"]);
    refused(
        &folder,
        "create api --group gateway --version v1 --kind Gateway --external-api-path a-b",
        &["gateway_api::"],
    );
    refused(
        &folder,
        "create api --group gateway --version v1 --kind Gateway --external-api-domain io",
        &["--external-api-path"],
    );
}

/// Each of these names is invalid by itself: the command fails, and changes nothing.
#[test]
fn names_that_kubernetes_and_rust_have_no_place_for() {
    let folder = Folder::new("ship");
    for domain in
        [".", "a.", "a..b", "a_b", "a/b", "ü.de", "example.com.", "https://", &"a".repeat(64), &"a.".repeat(128)]
    {
        refused(&folder, &format!("init --domain {domain}"), &["the domain"]);
    }
    for name in [
        "Ship",
        "ship_yard",
        "ship.yard",
        "ship/yard",
        "1ship",
        "ship-",
        "schüff",
        "fn",
        "std",
        "test",
        &"a".repeat(40),
    ] {
        refused(&folder, &format!("init --project-name {name}"), &["the project name"]);
    }
    folder.run("init");
    let api = |group: &str, version: &str, kind: &str, rest: &str| {
        format!("create api --group {group} --version {version} --kind {kind} {rest}")
    };
    for group in [".", "a.", "a..b", "a_b", "a/b", "ü", "Crew", &"a".repeat(64)] {
        refused(&folder, &api(group, "v1", "Cook", ""), &["the group"]);
    }
    for version in ["v", "1", "V1", "v1.0", "v1-alpha", "v1alpha", "valpha1", "v1alpha1beta1", "vü", "v1/v2", ".."] {
        refused(&folder, &api("crew", version, "Cook", ""), &["the version", "v1beta1"]);
    }
    for kind in
        ["cook", "Cook_", "Köchin", "日本", "1Cook", "Cook/Mate", "..", "Self", "Result", "Reconciler", &"A".repeat(64)]
    {
        refused(&folder, &api("crew", "v1", kind, ""), &["the kind"]);
    }
    for plural in ["Cooks", "köche", "1cooks", "cooks/", "-cooks", &"a".repeat(64)] {
        refused(&folder, &api("crew", "v1", "Cook", &format!("--plural={plural}")), &["the plural"]);
    }
}

/// Rust keywords as kinds and groups get modules with another name.
#[test]
fn keywords_may_be_kinds_and_groups() {
    let folder = Folder::new("ship");
    folder.run("init --multigroup");
    for kind in ["Type", "Crate", "Super", "Mod", "Main", "Async", "Gen"] {
        folder.run(&format!("create api --group crew --version v1 --kind {kind}"));
        let module = format!("{}_", kind.to_lowercase());
        assert!(folder.read(&format!("src/api/crew/v1/{module}.rs")).contains(&format!("struct {kind}Spec")));
        assert!(folder.read("src/api/crew/v1/mod.rs").contains(&format!("\nmod {module};\n")));
    }
    folder.run("create api --group fn --version v1 --kind Cook");
    assert!(folder.read("src/api/mod.rs").contains("pub mod fn_;"));
    let folder = Folder::with_captain();
    folder.run("create api --group crew --version v1 --kind Main");
    let tests = folder.read("tests/it/main.rs");
    assert!(tests.contains("mod captain;") && tests.contains("mod main_;"), "{tests}");
}

#[test]
fn versions_of_a_kind_share_plural_and_scope() {
    let folder = Folder::with_captain();
    let api = |rest: &str| format!("create api --group crew {rest}");
    let captains = "would be captains, as that of Captain";
    refused(&folder, &api("--version v1 --kind Cook --plural captains"), &[captains, "--plural"]);
    refused(&folder, &api("--version v2 --kind Cook --plural captains"), &[captains]);
    let second = "--version v2 --kind Captain --controller=false";
    refused(&folder, &api(&format!("{second} --plural skippers")), &["the plural captains in version v1"]);
    refused(&folder, &api(&format!("{second} --namespaced=false")), &["namespaced scope in version v1"]);
    folder.run(&api(second));
}

/// Directories and broken files in place of files.
#[test]
fn unreadable_files_are_errors() {
    let folder = Folder::with_captain();
    let cook = "create api --group crew --version v1 --kind Cook";
    fs::create_dir(folder.path().join("src/controller/cook.rs")).unwrap();
    refused(&folder, cook, &["cannot read src/controller/cook.rs"]);
    fs::remove_dir(folder.path().join("src/controller/cook.rs")).unwrap();
    folder.write("src/api/v2", "a file, not a folder");
    refused(&folder, "create api --group crew --version v2 --kind Cook", &["src/api/v2/"]);
    // A truncated PROJECT.
    let project = folder.read("PROJECT");
    for part in [10, project.len() / 2, project.len() - 20] {
        folder.write("PROJECT", &project[..part]);
        refused(&folder, cook, &["PROJECT"]);
    }
    folder.write("PROJECT", &project);
    folder.run(cook);
}

#[test]
fn other_directories_are_not_for_a_project() {
    let folder = Folder::new("42");
    refused(&folder, "init", &["\"42\"", "--project-name"]);
    folder.write("main.go", "package main");
    refused(&folder, "init --project-name ship", &["contains main.go", "mkdir NAME && cd NAME"]);
    fs::remove_file(folder.path().join("main.go")).unwrap();
    folder.write("Cargo.toml", "[package]\nname = \"mine\"\n");
    folder.write("src/main.rs", "fn main() {}\n");
    refused(
        &folder,
        "init --project-name ship",
        &["Cargo.toml already exists", "src/main.rs already exists", "move it away"],
    );
    let folder = Folder::with_captain();
    refused(&folder, "init", &["is already a project", "kubewright edit"]);
}

#[test]
fn common_files_are_kept() {
    let folder = Folder::new("ship");
    for (path, text) in [(".git/HEAD", "ref"), ("LICENSE", "mine"), ("README.md", "mine"), (".gitignore", "mine")] {
        folder.write(path, text);
    }
    folder.run("init");
    assert_eq!((folder.read("README.md").as_str(), folder.read(".gitignore").as_str()), ("mine", "mine"));
    assert!(folder.read("Cargo.toml").contains("name = \"ship\""));
}

#[test]
fn existing_apis_are_not_overwritten() {
    let folder = Folder::with_captain();
    let captain = "create api --group crew --version v1 --kind Captain";
    refused(&folder, captain, &["already has types", "edit src/api/v1/captain.rs", "--force"]);
    refused(
        &folder,
        "create api --group crew --version v2 --kind Captain",
        &["already has a controller, for version v1", "--controller=false"],
    );
    refused(&folder, "create api --group ship --version v1 --kind Frigate", &["kubewright edit --multigroup"]);
    refused(&folder, "create api --group crew --version v1 --kind CAPTAIN", &["of the kind Captain"]);
    refused(&folder, "create api --group crew --version v1 --kind CaptainSpec", &["of the kind Captain"]);
    refused(
        &folder,
        "create api --group crew --version v1 --kind Cook --resource=false --controller=false",
        &["nothing to do"],
    );
    refused(
        &folder,
        "create api --group crew --version v1 --kind Cook --resource=false",
        &["does not define Cook", "--external-api-path"],
    );
    folder.write("src/controller/cook.rs", "// mine");
    folder.write("config/samples/crew_v1_cook.yaml", "mine: true");
    let cook = "create api --group crew --version v1 --kind Cook";
    refused(
        &folder,
        cook,
        &["src/controller/cook.rs already exists", "config/samples/crew_v1_cook.yaml already exists", "--force"],
    );
    folder.run(&format!("{cook} --force"));
    assert!(folder.read("src/controller/cook.rs").contains("CookReconciler"));
    // With --force again, nothing is inserted twice.
    let before = folder.all();
    folder.run(&format!("{cook} --force"));
    assert!(folder.all() == before);
}

#[test]
fn webhooks_need_a_kind_and_are_not_overwritten() {
    let folder = Folder::with_captain();
    let captain = "create webhook --group crew --version v1 --kind Captain";
    refused(&folder, captain, &["nothing to do", "--programmatic-validation"]);
    let cook = "create webhook --group crew --version v1 --kind Cook --defaulting";
    refused(&folder, cook, &["no Cook in version v1", "kubewright create api first"]);
    folder.run(&format!("{captain} --defaulting"));
    let twice = format!("{captain} --defaulting --programmatic-validation");
    refused(&folder, &twice, &["already has a defaulting webhook", "--force"]);
    folder.edit("src/webhook/v1/captain.rs", "// +kubebuilder:scaffold:webhooks", "");
    let validation = format!("{captain} --programmatic-validation");
    refused(&folder, &validation, &["src/webhook/v1/captain.rs has no line", "struct CaptainValidator;"]);
    // An overwritten file has both.
    folder.run(&format!("{validation} --force"));
    let made = folder.read("src/webhook/v1/captain.rs");
    assert!(made.contains("struct CaptainDefaulter;") && made.contains("struct CaptainValidator;"), "{made}");
}

#[test]
fn conversions_need_a_hub_and_spokes() {
    const TYPES: &str = "src/api/v1/captain.rs";
    const HUB: &str = "src/api/v2/captain_conversion.rs";
    let folder = Folder::with_captain();
    folder.run("create api --group crew --version v2 --kind Captain --controller=false");
    let conversion = "create webhook --group crew --version v2 --kind Captain --conversion";
    let of_v1 = format!("{conversion} --spoke v1");
    refused(&folder, conversion, &["--conversion and --spoke belong together"]);
    refused(&folder, &format!("{conversion} --spoke v3"), &["no Captain in version v3", "create api"]);
    refused(&folder, &format!("{conversion} --spoke v1,1"), &["try \"v1\""]);
    // Edited code is reported with the code to add.
    folder.edit(TYPES, "pub struct CaptainSpec {", "pub struct CaptainSpec\n{");
    folder.edit("src/lib.rs", "let manager = manager.kind::<", "let manager = manager\n        .kind::<");
    let expected = ["src/api/v1/captain.rs was edited", "hub = crate::api::v2::CaptainSpec", "src/lib.rs was edited"];
    refused(&folder, &of_v1, &expected);
    folder.edit(TYPES, "pub struct CaptainSpec\n{", "pub struct CaptainSpec {");
    folder.edit("src/lib.rs", "let manager = manager\n        .kind::<", "let manager = manager.kind::<");
    folder.run(&of_v1);
    let library = folder.read("src/lib.rs");
    assert!(
        library.contains(".kind::<api::v2::Captain>()") && library.contains(".version::<api::v1::Captain>()"),
        "{library}"
    );
    refused(&folder, &of_v1, &["already has a conversion for one of these versions", "--force"]);
    refused(
        &folder,
        "create webhook --group crew --version v1 --kind Captain --conversion --spoke v2",
        &["v2 is already the hub"],
    );
    folder.run("create api --group crew --version v3 --kind Captain --controller=false");
    folder.run(&format!("{conversion} --spoke v3"));
    let made = (folder.read(HUB), folder.read(TYPES));
    assert_eq!(made.1.matches("conversion::Convert)]").count(), 2);
    folder.write(HUB, "");
    folder.run(&format!("{of_v1} --force"));
    assert!((folder.read(HUB), folder.read(TYPES)) == made, "an overwritten file has all spokes");
}

#[test]
fn settings_are_changed_and_restored() {
    let folder = Folder::with_captain();
    refused(&folder, "edit", &["nothing to do", "--multigroup"]);
    folder.run("edit --multigroup --namespaced");
    folder.run("create api --group ship --version v1 --kind Frigate");
    assert!(folder.read("src/api/ship/v1/frigate.rs").contains("struct FrigateSpec"));
    refused(&folder, "edit --multigroup=false", &["crew, ship"]);
    let folder = Folder::with_captain();
    folder.run("edit --multigroup --namespaced");
    folder.run("edit --multigroup=false --namespaced=false");
    // The record has both edits, which cancel each other out.
    let but_the_record = |folder: &Folder| {
        let mut all = folder.all();
        all.remove(".kubewright/scaffold.yaml");
        all
    };
    assert!(but_the_record(&folder) == but_the_record(&Folder::with_captain()));
    folder.edit("config/rbac/role_binding.yaml", "kind: ClusterRoleBinding", "kind: SomeBinding");
    refused(&folder, "edit --namespaced", &["config/rbac/role_binding.yaml was edited", "by hand:\nkind: RoleBinding"]);
}

#[test]
fn missing_markers_are_errors_with_a_hint() {
    let folder = Folder::with_captain();
    let cook = "create api --group crew --version v1 --kind Cook";
    folder.edit("src/lib.rs", "    // +kubebuilder:scaffold:builder\n", "");
    folder.edit("config/rbac/kustomization.yaml", "# +kubebuilder:scaffold:rbacresources", "");
    let says = [
        "src/lib.rs has no line `// +kubebuilder:scaffold:builder`",
        "let manager = manager.controller(controller::cook::controller());",
        "config/rbac/kustomization.yaml has no line `# +kubebuilder:scaffold:rbacresources`",
        "- cook_editor_role.yaml",
    ];
    refused(&folder, cook, &says);
    let folder = Folder::with_captain();
    folder.edit(
        "src/lib.rs",
        "    // +kubebuilder:scaffold:builder\n",
        &"    // +kubebuilder:scaffold:builder\n".repeat(2),
    );
    refused(&folder, cook, &["2 times", "keep one of them"]);
    fs::remove_file(folder.path().join("src/lib.rs")).unwrap();
    refused(&folder, cook, &["src/lib.rs is missing", "version control"]);
}

#[test]
fn invalid_projects_are_errors() {
    let folder = Folder::new("ship");
    let cook = "create api --group crew --version v1 --kind Cook";
    refused(&folder, cook, &["there is no PROJECT", "kubewright init"]);
    for (text, says) in [
        ("version: \"4\"\nprojectName: ship\n", "use a newer kubewright"),
        ("projectName: ship\n", "PROJECT has no version"),
        ("version: \"3\"\n", "PROJECT has no projectName"),
        ("version: [", "cannot read PROJECT"),
        ("", "PROJECT"),
        (
            "version: \"3\"\nprojectName: ship\nlayout: [go.kubebuilder.io/v4]\n",
            "use the tool that created the project",
        ),
    ] {
        folder.write("PROJECT", text);
        refused(&folder, cook, &[says]);
    }
    // A project that init did not finish.
    folder.write("PROJECT", "version: \"3\"\nprojectName: ship\nlayout: [rust.kubewright.dev/v1]\ndomain: a.b\n");
    refused(&folder, cook, &["src/lib.rs is missing", "config/rbac/kustomization.yaml is missing"]);
}

#[test]
fn an_interrupted_command_can_be_repeated() {
    let (whole, folder) = (Folder::with_captain(), Folder::with_captain());
    let cook = "create api --group crew --version v1 --kind Cook";
    whole.run(cook);
    // New files are written first, and PROJECT last.
    for path in ["src/api/v1/cook.rs", "src/controller/cook.rs", "config/samples/crew_v1_cook.yaml", "src/lib.rs"] {
        folder.write(path, &whole.read(path));
    }
    folder.run(cook);
    assert!(folder.all() == whole.all());
}

#[test]
fn commands_work_in_subdirectories_and_report_changes() {
    let folder = Folder::with_captain();
    let output = folder.try_run_in("src/api", "create api --group crew --version v1 --kind Cook");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "{stderr}");
    assert!(
        stderr.contains("     Created src/api/v1/cook.rs\n") && stderr.contains("     Changed src/lib.rs\n"),
        "{stderr}"
    );
    assert!(!stderr.contains("config/samples") && !stderr.contains('\u{1b}'), "{stderr}");
    assert_eq!(folder.run("--quiet create api --group crew --version v1 --kind Bosun"), "");
    let verbose = folder.run("create api --group crew --version v1 --kind Gunner -v");
    assert!(verbose.contains("Created config/samples/crew_v1_gunner.yaml"), "{verbose}");
}

#[test]
fn help_has_examples() {
    let folder = Folder::new("ship");
    for line in ["init --help", "create api --help", "create webhook --help", "edit --help"] {
        let help = String::from_utf8(folder.try_run(line).stdout).unwrap();
        assert!(help.contains("Examples:\n  # ") && help.contains("\n  kubewright "), "{help}");
    }
}
