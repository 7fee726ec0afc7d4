//! `kubewright delete` and `kubewright alpha generate`.

use std::{fs, process::Command};

use crate::folder::Folder;

const API: &str = "--group crew --version v1 --kind Captain";
const RECORD: &str = ".kubewright/scaffold.yaml";

/// Asserts that a command fails with a text, and changes nothing.
#[track_caller]
fn refused(folder: &Folder, line: &str, says: &str) {
    let before = folder.all();
    let output = folder.try_run(line);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "kubewright {line}: {stderr}");
    assert!(stderr.contains(says), "kubewright {line}: {says:?} is not in {stderr}");
    assert!(folder.all() == before, "kubewright {line} changed files");
}

/// Asserts that two projects have the same files.
#[track_caller]
fn same(folder: &Folder, expected: &Folder) {
    let mut found = folder.all();
    for (path, text) in expected.all() {
        assert_eq!(found.remove(&path).as_ref(), Some(&text), "{path}");
    }
    assert!(found.is_empty(), "{:?}", found.keys());
}

fn project(lines: &[&str]) -> Folder {
    let folder = Folder::new("ship");
    folder.run("init --domain testproject.org");
    for line in lines {
        folder.run(line);
    }
    folder
}

#[test]
fn a_deleted_api_leaves_no_trace() {
    for with_record in [true, false] {
        let folder = project(&[&format!("create api {API}"), "create api --group crew --version v1 --kind Mate"]);
        folder.write("config/crd/bases/crew.testproject.org_mates.yaml", "kind: CustomResourceDefinition\n");
        if !with_record {
            fs::remove_dir_all(folder.path().join(".kubewright")).unwrap();
        }
        let said = folder.run("delete api --group crew --version v1 --kind Mate --yes");
        for line in ["Deleted src/controller/mate.rs", "Changed src/lib.rs", "deleted"] {
            assert!(said.contains(line), "{line:?} is not in {said}");
        }
        let expected = project(&[&format!("create api {API}")]);
        if !with_record {
            fs::remove_dir_all(expected.path().join(".kubewright")).unwrap();
        }
        same(&folder, &expected);
        // Also the last one.
        folder.run(&format!("delete api {API}"));
        let expected = project(&[]);
        if !with_record {
            fs::remove_dir_all(expected.path().join(".kubewright")).unwrap();
        }
        same(&folder, &expected);
        refused(
            &folder,
            &format!("delete api {API}"),
            "the project has no Captain of the group \"crew\" in version v1",
        );
    }
}

#[test]
fn edited_files_stay_unless_forced() {
    let create = format!("create api {API}");
    for forced in [false, true] {
        let folder = project(&[&create, "create api --group crew --version v1 --kind Mate"]);
        folder.edit("src/controller/mate.rs", "async fn reconcile", "// Mine.\n    async fn reconcile");
        folder.edit("src/lib.rs", "mod controller;", "mod controller;\nmod menu;");
        let end = "let manager = manager.controller(controller::mate::controller());";
        folder.edit("src/lib.rs", end, &format!("{end}\n    // Mine.\n    let manager = menu::add(manager);"));
        let flag = if forced { " --force" } else { "" };
        let said = folder.run(&format!("delete api --group crew --version v1 --kind Mate{flag}"));
        let is_there = folder.path().join("src/controller/mate.rs").exists();
        assert_eq!(
            (is_there, said.contains("src/controller/mate.rs was edited and stays")),
            (!forced, !forced),
            "{said}"
        );
        assert!(!folder.path().join("src/api/v1/mate.rs").exists());
        let text = folder.read("src/lib.rs");
        assert!(
            text.contains("// Mine.\n    let manager = menu::add(manager);") && text.contains("mod menu;"),
            "{text}"
        );
        assert!(!text.contains("mate") && text.contains("controller::captain::controller()"), "{text}");
        assert!(!folder.read("src/controller/mod.rs").contains("mate"));
        assert!(!folder.read(RECORD).contains("mate"));
    }
}

#[test]
fn lines_that_were_edited_are_named() {
    let folder = project(&[&format!("create api {API}")]);
    let wired = "manager.controller(controller::captain::controller().concurrency(4));\n";
    folder.edit("src/lib.rs", "manager.controller(controller::captain::controller());\n", wired);
    let delete = format!("delete api {API}");
    refused(&folder, &delete, "src/lib.rs was edited where this command removes lines: remove these by hand");
    folder.run(&format!("{delete} --force"));
    let text = folder.read("src/lib.rs");
    assert!(text.contains(wired) && !text.contains("mod controller;") && !folder.read("PROJECT").contains("Captain"));
}

#[test]
fn webhooks_are_deleted_one_by_one_or_together() {
    let create = format!("create api {API}");
    let one = format!("create webhook {API} --defaulting");
    let both = format!("create webhook {API} --defaulting --programmatic-validation");
    let folder = project(&[&create, &both]);
    refused(
        &folder,
        &format!("delete api {API}"),
        "Captain in version v1 has webhooks: run kubewright delete webhook first",
    );
    refused(&folder, &format!("delete webhook {API} --conversion"), "Captain in version v1 has no conversion");
    folder.run(&format!("delete webhook {API} --programmatic-validation"));
    same(&folder, &project(&[&create, &one]));
    folder.run(&format!("delete webhook {API}"));
    same(&folder, &project(&[&create]));
    refused(&folder, &format!("delete webhook {API}"), "has no webhooks");

    let pod = "create webhook --group core --version v1 --kind Pod --defaulting";
    let folder = project(&[&create, pod]);
    folder.run("delete webhook --group core --version v1 --kind Pod");
    same(&folder, &project(&[&create]));
}

#[test]
fn versions_of_a_conversion_are_deleted_after_it() {
    let (first, second) =
        (format!("create api {API}"), "create api --group crew --version v2 --kind Captain --controller=false");
    let conversion = "create webhook --group crew --version v2 --kind Captain --conversion --spoke v1";
    let folder = project(&[&first, second, conversion]);
    refused(&folder, &format!("delete api {API}"), "Captain in version v2 converts from and to version v1");
    folder.run("delete webhook --group crew --version v2 --kind Captain");
    same(&folder, &project(&[&first, second]));
    folder.run("delete api --group crew --version v2 --kind Captain");
    same(&folder, &project(&[&first]));
}

#[test]
fn a_project_is_generated_from_its_project_file() {
    let folder = project(&[&format!("create api {API}"), &format!("create webhook {API} --defaulting")]);
    let said = folder.run("alpha generate --output-dir ../fresh --dry-run");
    assert!(said.contains("Created src/lib.rs") && said.contains("nothing was written"), "{said}");
    assert!(!folder.path().join("../fresh").exists());
    folder.run("alpha generate --output-dir fresh");
    let mut fresh = crate::folder::files(&folder.path().join("fresh"), false);
    fs::remove_dir_all(folder.path().join("fresh")).unwrap();
    for (path, text) in crate::folder::files(&folder.path(), false) {
        assert_eq!(fresh.remove(&path).as_ref(), Some(&text), "{path}");
    }
    assert!(fresh.is_empty(), "{:?}", fresh.keys());
    refused(
        &folder,
        "alpha generate --output-dir src",
        "src contains api: set --output-dir to an empty or a new directory",
    );

    // In place: edits are replaced, other files stay, and the record returns.
    let whole = folder.all();
    fs::remove_dir_all(folder.path().join(".kubewright")).unwrap();
    folder.edit("src/lib.rs", "// +kubebuilder:scaffold:modules", "mod menu;\n// +kubebuilder:scaffold:modules");
    folder.write("src/menu.rs", "//! Mine.\n");
    refused(&folder, "alpha generate", "use --force to update anyway");
    let said = folder.run("alpha generate --force");
    assert!(said.contains("Changed src/lib.rs") && !said.contains("menu"), "{said}");
    let mut found = folder.all();
    assert_eq!(found.remove("src/menu.rs").as_deref(), Some("//! Mine.\n"));
    assert!(found == whole);
}

#[test]
fn a_dry_run_of_an_update_writes_nothing() {
    let folder = Folder::with_captain();
    for path in ["Dockerfile", RECORD] {
        folder.edit(path, "USER 65532:65532", "USER 1000:1000");
    }
    let git = |arguments: &[&str]| Command::new("git").current_dir(folder.path()).args(arguments).output().unwrap();
    assert!(git(&["init", "--quiet"]).status.success());
    let before = folder.all();
    let said = folder.run("alpha update --dry-run");
    assert!(said.contains("Replaced Dockerfile") && said.contains("nothing was written"), "{said}");
    assert!(folder.all() == before);
}
