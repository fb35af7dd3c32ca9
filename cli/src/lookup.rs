//! From what the user typed to the ELF file that runs, as `execvp` and the kernel's `execve` would find it.
//!
//! Rules, each as Linux has it:
//! - A name without `/` is searched in `PATH`; an empty element is the working folder; a match that may not be executed is
//!   remembered and the search goes on (`execvp(3)`).
//! - A script's first line is read up to 255 bytes. `#!`, blanks, the interpreter's path, blanks, and the rest of the line as *one*
//!   argument without the blanks around it. The script's path takes the place of its `argv[0]`
//!   (`fs/binfmt_script.c`). The interpreter is a path, never searched in `PATH`.
//! - At most five interpreters in a row (`fs/exec.c`, `exec_binprm`).

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::elf;
use crate::error::At;
use crate::target::Target;
use crate::{Error, Result};

/// `BINPRM_BUF_SIZE`: what the kernel reads of a file to find out what it is.
const FIRST_BYTES: usize = 256;
/// How many times the kernel lets one interpreter stand for another.
const INTERPRETERS: usize = 5;

/// A guest program, found and looked at.
#[derive(Debug)]
pub struct Guest {
    /// The ELF file, as the kernel would open it.
    pub program: PathBuf,
    pub argv0: OsString,
    /// The arguments after `argv[0]`.
    pub args: Vec<OsString>,
    pub target: &'static Target,
    /// What `PT_INTERP` says.
    pub loader: Option<PathBuf>,
}

/// Finds the program and, through scripts, the ELF file that runs it.
pub fn guest(command: &OsStr, args: &[OsString]) -> Result<Guest> {
    let typed = in_path(command)?;
    let mut file = typed.clone();
    // As execve gets them; a script's line is put in front.
    let mut argv: Vec<OsString> = vec![command.to_os_string()];
    argv.extend(args.iter().cloned());

    for _ in 0..=INTERPRETERS {
        if let Some(program) = elf::read(&file)? {
            let argv0 = argv.remove(0);
            return Ok(Guest { program: file, argv0, args: argv, target: program.target, loader: program.loader });
        }
        let Some((interpreter, argument)) = script_line(&file)? else {
            return Err(Error::NotAProgram { program: file });
        };
        let script = file;
        argv[0] = script.clone().into_os_string();
        if let Some(argument) = argument {
            argv.insert(0, argument);
        }
        argv.insert(0, interpreter.clone().into_os_string());
        check(&interpreter).map_err(|e| Error::BadInterpreter {
            script,
            interpreter: interpreter.clone(),
            why: match &e {
                Error::ProgramNotFound { .. } => "which does not exist".into(),
                Error::NotExecutable { why, .. } => format!("which cannot be run: {why}"),
                other => other.to_string(),
            },
            code: e.code(),
        })?;
        file = interpreter;
    }
    Err(Error::InterpreterLoop { script: typed, limit: INTERPRETERS })
}

/// The file that `command` names, as `execvp` finds it.
pub fn in_path(command: &OsStr) -> Result<PathBuf> {
    let path = std::env::var_os("PATH");
    // What `execvp` takes when PATH is not set (`confstr(_CS_PATH)`).
    search(command, path.as_deref().unwrap_or(OsStr::new("/bin:/usr/bin")))
}

fn search(command: &OsStr, path: &OsStr) -> Result<PathBuf> {
    if command.as_bytes().contains(&b'/') {
        let program = PathBuf::from(command);
        check(&program)?;
        return Ok(program);
    }
    let not_found = Error::ProgramNotFound { program: command.into(), in_path: true };
    if command.is_empty() {
        return Err(not_found);
    }
    let mut denied = None;
    for folder in path.as_bytes().split(|&b| b == b':') {
        let folder = if folder.is_empty() { Path::new(".") } else { Path::new(OsStr::from_bytes(folder)) };
        let candidate = folder.join(command);
        match check(&candidate) {
            Ok(()) => return Ok(candidate),
            // A folder of that name is no match at all; a file that may not be run is, if nothing better comes.
            Err(e @ Error::NotExecutable { .. }) if !candidate.is_dir() => denied = denied.or(Some(e)),
            Err(_) => {}
        }
    }
    Err(denied.unwrap_or(not_found))
}

/// That `program` is a file which may be read and executed. (The kernel needs no reading; QEMU does.)
fn check(program: &Path) -> Result<()> {
    let refused = |why: &str| Err(Error::NotExecutable { program: program.to_path_buf(), why: why.into() });
    let metadata = match fs::metadata(program) {
        Ok(metadata) => metadata,
        Err(e) => match e.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => {
                return Err(Error::ProgramNotFound { program: program.to_path_buf(), in_path: false });
            }
            _ => return refused(&e.to_string()),
        },
    };
    if metadata.is_dir() {
        return refused("a directory, not a program");
    }
    if !metadata.is_file() {
        return refused("not a regular file");
    }
    if access(program, Access::EXEC_OK).is_err() {
        return refused("you may not execute it");
    }
    if access(program, Access::READ_OK).is_err() {
        return refused("you may not read it, and an emulator has to");
    }
    Ok(())
}

/// The interpreter and its argument, if the file is a script.
fn script_line(file: &Path) -> Result<Option<(PathBuf, Option<OsString>)>> {
    let mut first = Vec::with_capacity(FIRST_BYTES);
    File::open(file).and_then(|f| f.take(FIRST_BYTES as u64).read_to_end(&mut first)).at("read", file)?;
    Ok(parse_script_line(&first).map(|(i, a)| (PathBuf::from(OsString::from_vec(i)), a.map(OsString::from_vec))))
}

/// `first`: at most [`FIRST_BYTES`] from the file's start.
fn parse_script_line(first: &[u8]) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let blank = |b: &u8| matches!(b, b' ' | b'\t');
    let rest = first.strip_prefix(b"#!")?;
    let line = match rest.iter().position(|&b| b == b'\n') {
        Some(end) => &rest[..end],
        // The kernel's buffer ends in a NUL of its own, so one byte less of the line counts. A path that runs
        // into the end may be a part of a longer one: refused. A cut argument is taken as it is.
        None => {
            let line = if first.len() >= FIRST_BYTES { &rest[..FIRST_BYTES - 3] } else { rest };
            let start = line.iter().position(|b| !blank(b))?;
            let whole = first.len() < FIRST_BYTES || rest[start..].iter().any(|b| blank(b) || *b == 0);
            if !whole {
                return None;
            }
            line
        }
    };
    // The line is a C string to the kernel.
    let line = line.split(|&b| b == 0).next().unwrap_or_default();
    let line = trim(line, blank);
    if line.is_empty() {
        return None;
    }
    let end = line.iter().position(blank).unwrap_or(line.len());
    let argument = trim(&line[end..], blank);
    Some((line[..end].to_vec(), (!argument.is_empty()).then(|| argument.to_vec())))
}

fn trim(mut bytes: &[u8], blank: impl Fn(&u8) -> bool) -> &[u8] {
    while let [first, rest @ ..] = bytes
        && blank(first)
    {
        bytes = rest;
    }
    while let [rest @ .., last] = bytes
        && blank(last)
    {
        bytes = rest;
    }
    bytes
}

/// Where the dynamic loader and its libraries are to be looked for.
///
/// `chosen` is `-L` or `QEMU_LD_PREFIX`. Without it, a loader of the right kind under `/` wins (a native program, or
/// Debian's multiarch); else Debian's folder for cross compilers, `/usr/TRIPLET`, if the loader is there.
pub fn prefix(guest: &Guest, chosen: Option<&Path>) -> Result<Option<PathBuf>> {
    let Some(loader) = &guest.loader else {
        return Ok(chosen.map(Path::to_path_buf));
    };
    let fits = |path: &Path| elf::read(path).is_ok_and(|p| p.is_some_and(|p| p.target == guest.target));
    let under = |prefix: &Path| prefix.join(loader.strip_prefix("/").unwrap_or(loader));
    if let Some(prefix) = chosen {
        if fits(&under(prefix)) || fits(loader) {
            return Ok(Some(prefix.to_path_buf()));
        }
    } else {
        if fits(loader) {
            return Ok(None);
        }
        for (triplet, _) in guest.target.cross {
            let prefix = Path::new("/usr").join(triplet);
            if fits(&under(&prefix)) {
                return Ok(Some(prefix));
            }
        }
    }
    let searched = match chosen {
        Some(prefix) => format!("under {}", prefix.display()),
        None => match guest.target.cross.first() {
            Some((triplet, _)) => format!("under /usr/{triplet}"),
            None => "in a place that Trapline knows".to_string(),
        },
    };
    let packages: Vec<&str> = guest.target.cross.iter().map(|(_, package)| *package).collect();
    let give = format!(
        "give the folder that has this loader and the program's libraries: -L DIR, where DIR{} exists; or link the \
         program statically",
        Path::new("/").join(loader).display()
    );
    let hint = match packages.as_slice() {
        [] => give,
        packages => format!("install Debian's {}, or {give}", packages.join(" or ")),
    };
    Err(Error::LoaderMissing { program: guest.program.clone(), loader: loader.clone(), searched, hint })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn line(text: &[u8]) -> Option<(String, Option<String>)> {
        let s = |v: Vec<u8>| String::from_utf8(v).unwrap();
        parse_script_line(text).map(|(i, a)| (s(i), a.map(s)))
    }

    #[test]
    fn script_lines_as_the_kernel_reads_them() {
        let some = |i: &str, a: Option<&str>| Some((i.to_string(), a.map(str::to_string)));
        assert_eq!(line(b"#!/bin/sh\necho"), some("/bin/sh", None));
        assert_eq!(line(b"#! \t/bin/sh  -e \t\n"), some("/bin/sh", Some("-e")));
        assert_eq!(line(b"#!/usr/bin/env -S a b  c\n"), some("/usr/bin/env", Some("-S a b  c")));
        assert_eq!(line(b"#!/bin/sh"), some("/bin/sh", None));
        assert_eq!(line(b"#!/bin/sh\r\n"), some("/bin/sh\r", None));
        assert_eq!(line(b"#!/bin/sh\0-x\n"), some("/bin/sh", None));
        for bad in [&b"#!\n"[..], b"#!  \t \n", b"#!", b"#", b"", b" #!/bin/sh\n", b"text\n"] {
            assert_eq!(line(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_line_longer_than_the_kernels_buffer() {
        // The path runs into the end: refused, it may be cut.
        let mut long = b"#!/".to_vec();
        long.resize(300, b'a');
        assert_eq!(line(&long[..256]), None);
        // Only the argument is cut: taken.
        let mut long = b"#!/bin/sh ".to_vec();
        long.resize(300, b'a');
        let (interpreter, argument) = line(&long[..256]).unwrap();
        assert_eq!(interpreter, "/bin/sh");
        assert_eq!(argument.unwrap().len(), 255 - "#!/bin/sh ".len());
    }

    fn file(dir: &Path, name: &str, content: &str, mode: u32) -> PathBuf {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn path_is_searched_as_execvp_does() {
        let dir = tempfile::tempdir().unwrap();
        let d = dir.path();
        let good = file(d, "b/prog", "#!/bin/sh\n", 0o755);
        file(d, "a/prog", "x", 0o644);
        fs::create_dir_all(d.join("c/prog")).unwrap();
        let path = |names: &[&str]| {
            OsString::from(names.iter().map(|n| d.join(n).display().to_string()).collect::<Vec<_>>().join(":"))
        };
        // A file that may not be run, and a folder, do not stop the search.
        assert_eq!(search("prog".as_ref(), &path(&["c", "missing", "a", "b"])).unwrap(), good);
        let e = search("prog".as_ref(), &path(&["a", "c"])).unwrap_err();
        assert!(matches!(e, Error::NotExecutable { .. }) && e.code() == 126, "{e}");
        let e = search("prog".as_ref(), &path(&["c", "missing"])).unwrap_err();
        assert!(matches!(e, Error::ProgramNotFound { in_path: true, .. }) && e.code() == 127, "{e}");
        assert!(search("".as_ref(), &path(&["b"])).is_err());
        // With a slash PATH does not matter.
        assert_eq!(search(good.as_os_str(), "".as_ref()).unwrap(), good);
        let e = search(d.as_os_str(), "".as_ref()).unwrap_err();
        assert!(e.to_string().contains("a directory"), "{e}");
        let e = search(d.join("none").as_os_str(), "".as_ref()).unwrap_err();
        assert_eq!(e.code(), 127);
    }

    #[test]
    fn scripts_resolve_to_their_interpreters_arguments() {
        let dir = tempfile::tempdir().unwrap();
        let me = std::env::current_exe().unwrap();
        let d = dir.path();
        // Long paths would not fit into the kernel's line.
        let elf = d.join("e");
        std::os::unix::fs::symlink(&me, &elf).unwrap();
        let inner = file(d, "inner", &format!("#!{} -i  x\n", elf.display()), 0o755);
        let outer = file(d, "outer", &format!("#!{}\n", inner.display()), 0o755);
        let args: Vec<OsString> = vec!["one".into(), "two".into()];
        let g = guest(outer.as_os_str(), &args).unwrap();
        assert_eq!(g.program, elf);
        assert_eq!(g.argv0, elf.as_os_str());
        let wanted: Vec<OsString> = vec!["-i  x".into(), inner.into(), outer.into(), "one".into(), "two".into()];
        assert_eq!(g.args, wanted);
        assert_eq!(Some(g.target), Target::host());
    }

    #[test]
    fn what_cannot_be_run_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let d = dir.path();
        let text = file(d, "text", "hello\n", 0o755);
        assert!(matches!(guest(text.as_os_str(), &[]), Err(Error::NotAProgram { .. })));
        let empty = file(d, "empty", "", 0o755);
        assert!(matches!(guest(empty.as_os_str(), &[]), Err(Error::NotAProgram { .. })));
        let lost = file(d, "lost", "#!/no/such/interpreter\n", 0o755);
        let e = guest(lost.as_os_str(), &[]).unwrap_err();
        assert!(
            e.code() == 127 && e.to_string().contains("/no/such/interpreter") && e.to_string().contains("lost"),
            "{e}"
        );
        let looping = d.join("loop");
        file(d, "loop", &format!("#!{}\n", looping.display()), 0o755);
        assert!(matches!(guest(looping.as_os_str(), &[]), Err(Error::InterpreterLoop { .. })));
    }

    #[test]
    fn five_interpreters_are_allowed_and_six_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let d = dir.path();
        let mut last = d.join("0");
        std::os::unix::fs::symlink(std::env::current_exe().unwrap(), &last).unwrap();
        for n in 1..=6 {
            last = file(d, &n.to_string(), &format!("#!{}\n", last.display()), 0o755);
            let found = guest(last.as_os_str(), &[]);
            assert_eq!(found.is_ok(), n <= 5, "{n}");
        }
    }

    #[test]
    fn native_loader_needs_no_prefix_and_a_missing_one_says_the_package() {
        let g = guest(std::env::current_exe().unwrap().as_os_str(), &[]).unwrap();
        assert_eq!(prefix(&g, None).unwrap(), None);
        let foreign = Guest {
            program: "/p".into(),
            argv0: "p".into(),
            args: vec![],
            target: Target::named("hppa").unwrap(),
            loader: Some("/lib/no-such-loader.so.1".into()),
        };
        let e = prefix(&foreign, None).unwrap_err();
        assert!(e.hint().contains("libc6-hppa-cross") && e.hint().contains("-L"), "{}", e.hint());
        let e = prefix(&foreign, Some(Path::new("/nowhere"))).unwrap_err();
        assert!(e.to_string().contains("/nowhere"), "{e}");
        // As a shell: the kernel finds no such file.
        assert_eq!(e.code(), 127);
    }
}
