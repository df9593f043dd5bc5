use super::{native::MARK, *};
use std::{
    ffi::OsStr,
    io::{BufRead, BufReader, Write},
    os::unix::{ffi::OsStrExt as _, process::CommandExt as _},
    process::{Child, Stdio},
    time::{Duration, Instant},
};

/// A program that forks, and whose children use their cores; one is left behind by its parent. For each line it
/// gets a child ends and is waited for.
const FORKS: &str = "
import os, sys, time
def work(seconds):
    while time.process_time() < seconds: pass
def child(seconds):
    if os.fork() == 0:
        work(seconds); os.write(1, b'ready\\n'); time.sleep(1000)
child(0.2)
child(0.2)
if os.fork() == 0:
    if os.fork() == 0:
        work(0.2); os.setsid(); os.write(1, b'ready\\n'); time.sleep(1000)
    os._exit(0)
os.wait()
os.write(1, b'ready\\n')
for line in sys.stdin:
    if os.fork() == 0:
        work(0.3); os._exit(0)
    os.wait()
    print('waited', flush=True)
";

fn forks() -> Option<(Tree, Child, BufReader<std::process::ChildStdout>)> {
    let mut command = Command::new("python3");
    command.args(["-c", FORKS]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut tree = Tree::of(&mut command);
    let Ok(mut child) = command.spawn() else {
        eprintln!("skipped: there is no python3 here");
        return None;
    };
    tree.started(child.id());
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    // Each that stays has worked, and the one that left another behind has gone.
    (0..4).for_each(|_| wait(&mut output, "ready\n"));
    Some((tree, child, output))
}

fn wait(output: &mut impl BufRead, wanted: &str) {
    let mut line = String::new();
    output.read_line(&mut line).expect("it talks");
    assert_eq!(line, wanted);
}

fn is_alive(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// What children use is counted, while they live and after; and none of them outlives the tree.
fn check(without_group: bool) {
    let Some((mut tree, mut child, mut output)) = forks() else { return };
    if without_group {
        tree.0.without_group();
    }
    let processes = tree.processes();
    assert_eq!(processes.len(), 4, "the one that was left behind is among them");
    let before = tree.usage();
    assert_eq!((before.processes, &before.unknown), (4, &None));
    assert!(before.usage.cpu_ns >= Some(580_000_000), "{before:?}");
    let nothing = tree.usage().since(&before);
    assert!(nothing.usage.voluntary_switches.is_some(), "{nothing:?}");
    assert_eq!((&nothing.unknown, &nothing.switches_unknown), (&None, &None));
    child.stdin.as_mut().expect("piped").write_all(b"go\n").expect("it listens");
    wait(&mut output, "waited\n");
    let used = tree.usage().since(&before);
    // The time of a child that was waited for is told in steps of 10 ms.
    assert!(used.usage.cpu_ns >= Some(270_000_000), "{used:?}");
    assert_eq!(used.usage.voluntary_switches, None, "they went with it");
    assert_eq!(used.unknown, None, "the CPU time is known");
    assert!(used.switches_unknown.is_some_and(|why| why.contains("ended while")));
    drop(tree);
    child.kill().ok();
    child.wait().expect("it is ours");
    await_end(&processes);
}

/// Waits for the end of processes that were killed. One has left its group a moment before it is seen to have ended.
fn await_end(processes: &[u32]) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while processes.iter().any(|id| is_alive(*id)) {
        assert!(Instant::now() < deadline, "{processes:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_children_use_is_counted_and_none_is_left() {
    check(false);
}

#[test]
fn descendants_are_found_without_a_control_group() {
    check(true);
}

#[test]
fn what_is_lost_with_children_is_said_to_be_unknown() {
    let mut command = Command::new("python3");
    let script = "import signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print('ready', flush=True)
sys.stdin.read()";
    command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut tree = Tree::of(&mut command);
    let Ok(mut child) = command.spawn() else {
        eprintln!("skipped: there is no python3 here");
        return;
    };
    tree.started(child.id());
    wait(&mut BufReader::new(child.stdout.take().expect("piped")), "ready\n");
    tree.0.without_group();
    let usage = tree.usage();
    assert!(usage.usage.cpu_ns.is_none() && usage.unknown.is_some(), "{usage:?}");
    assert_eq!(tree.cpu_ns(), None);
    child.kill().expect("it is ours");
    child.wait().expect("it is ours");
}

/// A process has the name of the file that was started, which may be any bytes.
#[test]
fn a_process_whose_name_is_no_text_is_found_and_ended() {
    let name = [b"weir-\xff-", std::process::id().to_string().as_bytes()].concat();
    let program = std::env::temp_dir().join(OsStr::from_bytes(&name));
    std::os::unix::fs::symlink("/bin/sleep", &program).expect("a link");
    let mut command = Command::new(&program);
    let mut tree = Tree::of(command.arg0("sleep").arg("100"));
    let mut child = command.spawn().expect("it starts");
    tree.started(child.id());
    tree.0.without_group();
    assert_eq!(tree.processes(), [child.id()]);
    tree.end();
    let status = child.wait().expect("it is ours");
    assert!(!status.success(), "{status}");
    std::fs::remove_file(&program).expect("it is ours");
}

/// Whoever is found by its mark alone, when all else has ended, is waited for as well.
#[test]
fn who_was_missed_is_killed_and_waited_for() {
    let mut command = Command::new("true");
    let mut tree = Tree::of(&mut command);
    tree.0.without_group();
    let mut child = command.spawn().expect("it starts");
    tree.started(child.id());
    // As one whose ancestors have all gone: a child of this process, with the mark.
    let mut missed = Command::new("sleep");
    missed.arg("100").env(MARK, tree.0.mark());
    let missed = missed.spawn().expect("it starts").id();
    tree.0.end_those_missed();
    assert!(!std::path::Path::new(&format!("/proc/{missed}")).exists(), "it was not waited for");
    child.wait().expect("it is ours");
}

/// A program whose number is the one that the root of a tree had, and its children, are not the tree's.
#[test]
fn who_has_the_number_of_a_root_that_was_waited_for_is_left_alone() {
    // The second shell is nothing of ours: it is a child of the first.
    const SHELLS: &str = "sh -c 'sleep 100 & echo $$ $!; read line; kill $!' <&3 & wait";
    let mut others = Command::new("sh");
    others.args(["-c", &format!("exec 3<&0; {SHELLS}")]);
    let mut others = others.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
    let mut line = String::new();
    BufReader::new(others.stdout.take().expect("piped")).read_line(&mut line).expect("it talks");
    let ids: Vec<u32> = line.split_whitespace().map(|id| id.parse().expect("a number")).collect();
    for without_group in [false, true] {
        let mut command = Command::new("true");
        let mut tree = Tree::of(&mut command);
        let mut child = command.spawn().expect("it starts");
        tree.started(child.id());
        if without_group {
            tree.0.without_group();
        }
        child.wait().expect("it is ours");
        tree.0.with_root(ids[0]);
        assert_eq!((tree.processes(), tree.threads().len()), (vec![], 0));
        let usage = tree.usage();
        assert_eq!((usage.processes, usage.usage.resident_bytes), (0, None), "{usage:?}");
        tree.end();
        assert!(ids.iter().all(|id| is_alive(*id)), "{ids:?}");
    }
    drop(others.stdin.take());
    others.wait().expect("it is ours");
}

/// Set where [`what_a_killed_owner_left_is_ended_with_the_next_tree`] runs in a process that is to be killed.
const TO_BE_KILLED: &str = "WEIR_TEST_TO_BE_KILLED";

#[test]
fn what_a_killed_owner_left_is_ended_with_the_next_tree() {
    if std::env::var_os(TO_BE_KILLED).is_some() {
        let Some((mut tree, mut child, _output)) = forks() else { return };
        let processes = tree.processes();
        let group = tree.0.group().map(|group| group.display().to_string()).unwrap_or_default();
        let processes: Vec<String> = processes.iter().map(u32::to_string).collect();
        println!("\nowned: {group}\t{}", processes.join("\t"));
        let _stays_open = child.stdin.take(); // waiting for it would close it, and it would end
        child.wait().expect("it is ours");
        return;
    }
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    let name = "process::tree::tests::what_a_killed_owner_left_is_ended_with_the_next_tree";
    command.args(["--exact", name, "--nocapture"]).env(TO_BE_KILLED, "1").stdout(Stdio::piped());
    let mut owner = command.spawn().expect("it starts");
    let mut lines = BufReader::new(owner.stdout.take().expect("piped")).lines();
    let owned = lines.find_map(|line| Some(line.ok()?.strip_prefix("owned: ")?.to_owned()));
    let owned = owned.unwrap_or_default();
    let (group, processes) = owned.split_once('\t').unwrap_or_default();
    let processes: Vec<u32> =
        processes.split_terminator('\t').map(|id| id.parse().unwrap()).collect();
    let alive = || processes.iter().filter(|id| is_alive(**id)).count();
    // While its owner lives it is left alone.
    drop(Tree::of(&mut Command::new("true")));
    assert_eq!(alive(), processes.len());
    owner.kill().expect("it is ours");
    owner.wait().expect("it is ours");
    drop(Tree::of(&mut Command::new("true")));
    if group.is_empty() {
        eprintln!("skipped: there is no python3 here, or no control group can be made");
        processes.iter().filter(|id| is_alive(**id)).for_each(|id| native::kill(*id));
        return;
    }
    assert!(!std::path::Path::new(group).exists(), "{group}");
    assert_eq!(processes.len(), 4);
    await_end(&processes);
}

#[test]
fn switches_of_threads_that_ended_are_not_known() {
    let of = |threads: &[u32], switches: u64| TreeUsage {
        usage: ProcessUsage { voluntary_switches: Some(switches), ..ProcessUsage::default() },
        threads: threads.to_vec(),
        ..TreeUsage::default()
    };
    let before = of(&[1, 2], 10);
    assert_eq!(of(&[1, 2, 3], 15).since(&before).usage.voluntary_switches, Some(5));
    let after = of(&[1, 3], 15).since(&before);
    assert_eq!(after.usage.voluntary_switches, None);
    assert!(after.switches_unknown.is_some_and(|why| why.contains("threads")));
}
