use super::*;

fn folder(files: &[(&str, &str)]) -> BTreeMap<String, String> {
    files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

fn paths(changes: &[Change]) -> Vec<&str> {
    changes.iter().map(|change| change.path.as_str()).collect()
}

fn conflicts(plan: Plan<'_>) -> String {
    plan.finish().unwrap_err().to_string()
}

#[test]
fn new_files_are_first_and_the_project_file_is_last() {
    let folder = folder(&[("PROJECT", "old"), ("src/lib.rs", "// +kubebuilder:scaffold:modules\n")]);
    let mut plan = Plan::new(&folder);
    plan.replace("PROJECT", "new").insert("src/lib.rs", "modules", "mod b;", InsertPosition::Sorted);
    plan.create("z", "").create("a/b", "text");
    plan.insert("src/lib.rs", "modules", "mod a;", InsertPosition::Sorted);
    let changes = plan.finish().unwrap();
    assert_eq!(paths(&changes), ["a/b", "z", "src/lib.rs", "PROJECT"]);
    assert_eq!(changes[2].after.as_deref(), Some("mod a;\nmod b;\n// +kubebuilder:scaffold:modules\n"));
    assert_eq!(changes[2].before.as_deref(), Some("// +kubebuilder:scaffold:modules\n"));
}

#[test]
fn existing_content_is_no_change() {
    let folder = folder(&[("same", "text"), ("kept", "the user's"), ("marked", "x\n# +kubebuilder:scaffold:a\n")]);
    let mut plan = Plan::new(&folder);
    plan.create("same", "text").create_if_missing("kept", "ours").insert("marked", "a", "x", InsertPosition::Last);
    assert!(plan.finish().unwrap().is_empty());
}

#[test]
fn all_obstacles_are_reported_together() {
    let folder = folder(&[("there", "the user's"), ("unmarked", "")]);
    let mut plan = Plan::new(&folder);
    plan.create("fine", "").create("there", "ours").create("there", "ours again");
    plan.insert("gone", "a", "first", InsertPosition::Last).insert("unmarked", "a", "second", InsertPosition::Last);
    let told = conflicts(plan);
    assert!(told.starts_with("there already exists with other content"), "{told}");
    assert!(told.contains("\ngone is missing: restore it") && told.contains("first\nunmarked has no line"), "{told}");
    assert!(told.ends_with("second") && told.matches("other content").count() == 1, "{told}");
}

#[test]
fn force_overwrites() {
    let folder = folder(&[("there", "the user's")]);
    let mut plan = Plan::new(&folder);
    plan.force(true).create("there", "ours");
    let changes = plan.finish().unwrap();
    assert_eq!((changes[0].before.as_deref(), changes[0].after.as_deref()), (Some("the user's"), Some("ours")));
}

#[test]
fn code_is_inserted_into_a_file_of_the_same_plan() {
    let folder = folder(&[]);
    let mut plan = Plan::new(&folder);
    plan.create("a.yaml", "# +kubebuilder:scaffold:a\n").insert("a.yaml", "a", "- b", InsertPosition::Last);
    let changes = plan.finish().unwrap();
    assert_eq!(
        (changes[0].before.as_ref(), changes[0].after.as_deref()),
        (None, Some("- b\n# +kubebuilder:scaffold:a\n"))
    );
}

#[test]
fn paths_stay_in_the_project() {
    for path in ["", "/etc/passwd", "../up", "a/../../up", "a//b", "./a", "a/", "a\\b", "a\0"] {
        let folder = folder(&[]);
        let mut plan = Plan::new(&folder);
        plan.replace(path, "");
        assert!(conflicts(plan).contains("is not a path in the project"), "{path:?}");
    }
}

#[test]
fn an_unreadable_file_is_an_obstacle() {
    struct Broken;

    impl Source for Broken {
        fn read(&self, _: &str) -> io::Result<Option<String>> {
            Err(io::ErrorKind::PermissionDenied.into())
        }
    }

    let mut plan = Plan::new(&Broken);
    plan.create("a", "").replace("a", "");
    assert_eq!(conflicts(plan), "cannot read a: permission denied");
}

#[test]
fn lines_are_replaced_and_restored() {
    let swap = |text: &str, from: &str, to: &str| {
        let folder = BTreeMap::from([("a".to_owned(), text.to_owned())]);
        let mut plan = Plan::new(&folder);
        plan.swap("a", from, to);
        plan.finish()
            .map(|changes| changes.into_iter().next().and_then(|change| change.after).unwrap_or(text.to_owned()))
    };
    for (short, long) in [("kind: A\n", "kind: A\nmore: 1\n"), ("kind: A\n", "kind: B\n")] {
        let there = format!("x\n{short}y\n");
        let back = format!("x\n{long}y\n");
        assert_eq!(swap(&there, short, long).unwrap(), back);
        assert_eq!(swap(&back, short, long).unwrap(), back, "done already");
        assert_eq!(swap(&back, long, short).unwrap(), there);
        assert_eq!(swap(&there, long, short).unwrap(), there, "done already");
    }
    let error = swap("mine\n", "kind: A\n", "kind: B\n").unwrap_err().to_string();
    assert_eq!(error, "a was edited where this command changes it: add this by hand:\nkind: B");
    assert!(swap("kind: A\nkind: A\n", "kind: A\n", "kind: B\n").is_err());
}
