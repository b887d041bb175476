use std::sync::Mutex;

use pretty_assertions::assert_eq;
use serde_json::json;

use super::super::testing::context;
use super::*;
use crate::PolicyOptions;

struct Desk {
    dir: tempfile::TempDir,
    desk: PlanDesk,
    changes: Arc<Mutex<Vec<ModeChange>>>,
}

impl Desk {
    fn new(options: PolicyOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let folder = PlanFolder::new(dir.path().canonicalize().unwrap().join("session").join("plans"));
        let changes: Arc<Mutex<Vec<ModeChange>>> = Arc::default();
        let told = changes.clone();
        let on_mode: ModeListener = Arc::new(move |change| told.lock().unwrap().push(change));
        let policy = SessionPolicy::new(PolicyOptions { plans: Some(folder.clone()), ..options }).unwrap();
        Self { dir, desk: PlanDesk { policy, folder, on_mode }, changes }
    }

    fn planning() -> Self {
        let desk = Self::new(PolicyOptions { mode: Mode::Plan, ..PolicyOptions::default() });
        std::fs::create_dir_all(desk.desk.folder.path()).unwrap();
        desk
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.desk.folder.path().join(name), text).unwrap();
    }

    fn mode(&self) -> Mode {
        self.desk.policy.mode()
    }

    fn exit(&self, name: &str) -> Arc<dyn Invocation> {
        ExitPlanMode::new(self.desk.clone()).build(&json!({"plan_filename": name})).unwrap()
    }
}

fn change(before: Mode, after: Mode) -> ModeChange {
    ModeChange { before, after }
}

#[tokio::test]
async fn entering_makes_the_folder_and_tells() {
    let desk = Desk::new(PolicyOptions::default());
    let call = EnterPlanMode::new(desk.desk.clone()).build(&json!({"reason": " it is large "})).unwrap();
    assert_eq!(call.description(), "Plan first: it is large");
    let text = call.execute(&context()).await.unwrap().text;
    assert!(text.contains(&desk.desk.folder.path().display().to_string()), "{text}");
    assert!(desk.desk.folder.path().is_dir());
    assert_eq!(*desk.changes.lock().unwrap(), [change(Mode::Default, Mode::Plan)]);
}

#[tokio::test]
async fn a_folder_that_is_a_link_is_not_taken() {
    let desk = Desk::new(PolicyOptions::default());
    std::fs::create_dir_all(desk.dir.path().join("session")).unwrap();
    std::os::unix::fs::symlink(desk.dir.path(), desk.desk.folder.path()).unwrap();
    let call = EnterPlanMode::new(desk.desk.clone()).build(&json!({})).unwrap();
    let failure = call.execute(&context()).await.unwrap_err();
    assert!(failure.message().contains("a link leads elsewhere"), "{failure}");
    assert_eq!(desk.mode(), Mode::Default);
}

#[tokio::test]
async fn mode_that_may_not_be_entered_is_told() {
    let desk = Desk::new(PolicyOptions { plan_enabled: false, ..PolicyOptions::default() });
    let call = EnterPlanMode::new(desk.desk.clone()).build(&json!({})).unwrap();
    let failure = call.execute(&context()).await.unwrap_err();
    assert_eq!(failure.message(), "Failed to enter plan mode, which is disabled. Go on without it.");
}

#[tokio::test]
async fn an_approved_plan_ends_the_mode_and_is_known() {
    let desk = Desk::planning();
    desk.write("a.md", "# Plan\n1. Look\n");
    let call = desk.exit("a.md");
    let path = desk.desk.folder.path().join("a.md").display().to_string();
    let asked = call.confirmation().await.unwrap();
    assert_eq!(asked, ConfirmationDetails::Plan { path: path.clone(), text: "# Plan\n1. Look\n".into() });
    let output = call.execute(&context()).await.unwrap();
    assert_eq!(output.data, Some(json!({"approvedPlan": path, "mode": "default"})));
    assert_eq!(*desk.changes.lock().unwrap(), [change(Mode::Plan, Mode::Default)]);
    assert_eq!(desk.desk.policy.approved_plan(), Some(path.into()));
    // Planning anew forgets it.
    desk.desk.policy.set_mode(Mode::Plan).unwrap();
    assert_eq!(desk.desk.policy.approved_plan(), None);
}

#[tokio::test]
async fn a_plan_that_changed_since_it_was_shown_is_not_carried_out() {
    let desk = Desk::planning();
    desk.write("a.md", "Look.");
    let call = desk.exit("a.md");
    call.confirmation().await.unwrap();
    desk.write("a.md", "Delete.");
    // As the answer "allow all edits" does before the call runs.
    desk.desk.policy.set_mode(Mode::AutoEdit).unwrap();
    let failure = call.execute(&context()).await.unwrap_err();
    assert!(failure.message().contains("changed while the user looked at it"), "{failure}");
    assert_eq!((desk.mode(), desk.desk.policy.approved_plan()), (Mode::Plan, None));
}

#[tokio::test]
async fn what_is_no_plan_is_refused_before_anybody_is_asked() {
    let desk = Desk::planning();
    desk.write("empty.md", " \n");
    desk.write("text.txt", "x");
    desk.write("raw.md", b"\xff");
    desk.write("huge.md", "x".repeat(usize::try_from(PLAN_BYTES_MAX).unwrap() + 1));
    std::fs::create_dir(desk.desk.folder.path().join("folder.md")).unwrap();
    std::fs::write(desk.dir.path().join("outside.md"), "x").unwrap();
    std::os::unix::fs::symlink(desk.dir.path().join("outside.md"), desk.desk.folder.path().join("link.md")).unwrap();
    let outside = desk.dir.path().join("outside.md").display().to_string();
    for (name, why) in [
        ("none.md", "does not exist"),
        ("empty.md", "is empty"),
        ("text.txt", "is not a Markdown file in the folder of plans"),
        ("raw.md", "is not UTF-8"),
        ("huge.md", "is larger than"),
        ("folder.md", "is not a file"),
        ("link.md", "is not a Markdown file in the folder of plans"),
        ("../../outside.md", "is not a Markdown file in the folder of plans"),
        (&outside, "is not a Markdown file in the folder of plans"),
    ] {
        let call = desk.exit(name);
        let failure = call.confirmation().await.unwrap_err();
        assert!(failure.message().contains(why), "{name}: {failure}");
        assert!(call.execute(&context()).await.is_err());
    }
    for args in [json!({}), json!({"plan_filename": " "}), json!({"plan_filename": "a\u{0}.md"})] {
        let tool = ExitPlanMode::new(desk.desk.clone());
        assert_eq!(tool.build(&args).err().unwrap().error_type(), Some(ErrorType::InvalidToolParams), "{args}");
    }
    assert_eq!((desk.mode(), desk.changes.lock().unwrap().len()), (Mode::Plan, 0));
}

#[test]
fn planning_ends_where_it_began_and_never_in_more_than_that() {
    let path = PathBuf::from("/plans/a.md");
    let policy = |mode, interactive| {
        SessionPolicy::new(PolicyOptions { mode, interactive, ..PolicyOptions::default() }).unwrap()
    };
    for (begins, interactive, after) in [
        (Mode::Default, false, Mode::Default),
        (Mode::AutoEdit, false, Mode::AutoEdit),
        (Mode::Yolo, false, Mode::Yolo),
        (Mode::Plan, false, Mode::Default),
        // Who approves says whether edits are asked about.
        (Mode::AutoEdit, true, Mode::Default),
        (Mode::Yolo, true, Mode::Default),
    ] {
        let policy = policy(begins, interactive);
        policy.set_mode(Mode::Plan).unwrap();
        assert_eq!(policy.carry_out(path.clone()), change(Mode::Plan, after), "{begins:?} {interactive}");
    }
    // Whoever left it by hand decided already.
    let left = policy(Mode::Plan, true);
    left.set_mode(Mode::AutoEdit).unwrap();
    assert_eq!(left.carry_out(path), change(Mode::AutoEdit, Mode::AutoEdit));
}
