//! Reading the machine's own apt sources, to learn which mirror serves Debian's main archive.
//!
//! Both forms are read: one-line (`*.list`) and deb822 (`*.sources`). Nothing is ever written to `/etc/apt`.
//! Only what is needed to name a mirror is understood; an entry that is not understood is skipped, never an error:
//! apt itself will complain about it if it is wrong.

use std::fs;
use std::path::Path;

/// One entry: for one-line files a line, for deb822 files a stanza.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entry {
    /// `deb`, `deb-src`.
    pub types: Vec<String>,
    pub uris: Vec<String>,
    pub suites: Vec<String>,
    pub components: Vec<String>,
    /// A keyring's path. An embedded key is not taken over.
    pub signed_by: Option<String>,
    pub trusted: bool,
}

/// A mirror of Debian's main archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    pub uri: String,
    pub signed_by: Option<String>,
    pub trusted: bool,
}

/// Debian's suites and code names that an entry for the main archive may name.
const SUITES: &[&str] = &[
    "oldoldstable",
    "oldstable",
    "stable",
    "testing",
    "unstable",
    "sid",
    "bullseye",
    "bookworm",
    "trixie",
    "forky",
    "duke",
];

/// Entries of `DIR/sources.list` and `DIR/sources.list.d/*`, in apt's order.
pub fn read(etc_apt: &Path) -> Vec<Entry> {
    let mut entries = Vec::new();
    if let Ok(text) = fs::read_to_string(etc_apt.join("sources.list")) {
        entries.extend(one_line(&text));
    }
    let Ok(dir) = fs::read_dir(etc_apt.join("sources.list.d")) else {
        return entries;
    };
    let mut files: Vec<_> = dir.filter_map(|f| f.ok()).map(|f| f.path()).collect();
    files.sort();
    for file in files {
        let Ok(text) = fs::read_to_string(&file) else {
            continue;
        };
        match file.extension().and_then(|e| e.to_str()) {
            Some("list") => entries.extend(one_line(&text)),
            Some("sources") => entries.extend(deb822(&text)),
            _ => {}
        }
    }
    entries
}

/// `deb [signed-by=/k.gpg arch=amd64] http://mirror/debian bookworm main contrib  # note`
pub fn one_line(text: &str) -> Vec<Entry> {
    text.lines().filter_map(one_entry).collect()
}

fn one_entry(line: &str) -> Option<Entry> {
    let line = line.split('#').next()?.trim();
    let (kind, mut rest) = line.split_once(char::is_whitespace)?;
    if !matches!(kind, "deb" | "deb-src") {
        return None;
    }
    let mut entry = Entry { types: vec![kind.to_string()], ..Entry::default() };
    rest = rest.trim_start();
    if let Some(options) = rest.strip_prefix('[') {
        let (options, after) = options.split_once(']')?;
        for option in options.split_whitespace() {
            match option.split_once('=') {
                Some((key, value)) if key.eq_ignore_ascii_case("signed-by") => entry.signed_by = keyring(value),
                Some((key, value)) if key.eq_ignore_ascii_case("trusted") => entry.trusted = yes(value),
                _ => {}
            }
        }
        rest = after;
    }
    let mut words = rest.split_whitespace().map(str::to_string);
    entry.uris = vec![words.next()?];
    entry.suites = vec![words.next()?];
    entry.components = words.collect();
    Some(entry)
}

/// Stanzas of `Field: value` with continuation lines, separated by empty lines.
pub fn deb822(text: &str) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in text.lines().chain([""]) {
        if line.starts_with('#') {
            continue;
        }
        if line.trim().is_empty() {
            entries.extend(stanza(&std::mem::take(&mut fields)));
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = fields.last_mut() {
                value.push('\n');
                value.push_str(line.trim());
            }
        } else if let Some((name, value)) = line.split_once(':') {
            fields.push((name.trim().to_ascii_lowercase(), value.trim().to_string()));
        }
    }
    entries
}

fn stanza(fields: &[(String, String)]) -> Option<Entry> {
    let get = |name: &str| fields.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    let words =
        |name: &str| -> Vec<String> { get(name).unwrap_or_default().split_whitespace().map(str::to_string).collect() };
    if get("enabled").is_some_and(|v| !yes(v)) {
        return None;
    }
    let entry = Entry {
        types: words("types"),
        uris: words("uris"),
        suites: words("suites"),
        components: words("components"),
        signed_by: get("signed-by").and_then(keyring),
        trusted: get("trusted").is_some_and(yes),
    };
    (!entry.types.is_empty() && !entry.uris.is_empty() && !entry.suites.is_empty()).then_some(entry)
}

fn yes(value: &str) -> bool {
    matches!(value.trim().to_ascii_lowercase().as_str(), "yes" | "true" | "1" | "on" | "with" | "enable")
}

/// A path; neither a fingerprint nor an embedded key.
fn keyring(value: &str) -> Option<String> {
    let value = value.trim();
    (value.starts_with('/') && !value.contains(char::is_whitespace)).then(|| value.to_string())
}

/// The mirrors of Debian's main archive among the entries, most likely first, each once.
///
/// The main archive is told from its companions (security, third parties) by what an entry asks for: a suite of
/// Debian's without `-security`, the component `main`, and, best, a path that ends in `debian` as nearly all mirrors' do.
pub fn debian_mirrors(entries: &[Entry]) -> Vec<Mirror> {
    let mut found: Vec<(bool, Mirror)> = Vec::new();
    for entry in entries {
        let suite = |s: &String| {
            SUITES.iter().any(|known| {
                s == known
                    || s.strip_prefix(known)
                        .is_some_and(|r| matches!(r, "-updates" | "-backports" | "-proposed-updates"))
            })
        };
        if !entry.suites.iter().any(suite) || !entry.components.iter().any(|c| c == "main") {
            continue;
        }
        for uri in &entry.uris {
            let fetchable = ["http:", "https:", "file:", "ftp:", "mirror:", "mirror+", "tor+"];
            if !fetchable.iter().any(|scheme| uri.starts_with(scheme)) {
                continue;
            }
            let path = uri.trim_end_matches('/');
            if path.ends_with("-security") || path.contains("/debian-security") {
                continue;
            }
            let mirror = Mirror { uri: uri.clone(), signed_by: entry.signed_by.clone(), trusted: entry.trusted };
            let likely = path.ends_with("/debian");
            if !found.iter().any(|(_, m)| m.uri.trim_end_matches('/') == path) {
                found.push((likely, mirror));
            }
        }
    }
    found.sort_by_key(|(likely, _)| !likely);
    found.into_iter().map(|(_, mirror)| mirror).collect()
}

impl Mirror {
    /// The line of a private sources list that gives the source packages of `suite`.
    pub fn source_line(&self, suite: &str, keyring: Option<&Path>) -> String {
        let mut options = Vec::new();
        let own = self.signed_by.clone().filter(|k| Path::new(k).exists());
        match keyring.map(|k| k.display().to_string()).or(own) {
            Some(keyring) => options.push(format!("signed-by={keyring}")),
            None if self.trusted => options.push("trusted=yes".to_string()),
            None => {}
        }
        let options = if options.is_empty() { String::new() } else { format!("[{}] ", options.join(" ")) };
        format!("deb-src {options}{} {suite} main\n", self.uri)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_entries() {
        let entries = one_line(
            "# deb http://commented/debian bookworm main\n\
             deb [arch=amd64 signed-by=/usr/share/keyrings/d.gpg] http://m/debian bookworm main contrib # x\n\
             deb-src http://m/debian/ bookworm main\n\
             deb http://m/debian-security bookworm-security main\n\
             deb [trusted=yes] file:/srv/debian trixie main\n\
             deb cdrom:[Debian]/ bookworm main\n\
             rpm http://x y z\n\
             deb http://short\n\
             deb [unclosed http://m/debian bookworm main\n",
        );
        assert_eq!(entries.len(), 5);
        assert_eq!(entries[0].signed_by.as_deref(), Some("/usr/share/keyrings/d.gpg"));
        assert_eq!(entries[0].components, ["main", "contrib"]);
        assert!(entries[3].trusted);
        let mirrors = debian_mirrors(&entries);
        assert_eq!(mirrors.iter().map(|m| m.uri.as_str()).collect::<Vec<_>>(), ["http://m/debian", "file:/srv/debian"]);
    }

    #[test]
    fn deb822_entries() {
        let entries = deb822(
            "# comment\nTypes: deb deb-src\nURIs: http://m/debian\n http://n/debian\nSuites: bookworm bookworm-updates\n\
             Components: main\n# inside\nSigned-By: /usr/share/keyrings/d.gpg\n\n\
             Types: deb\nURIs: http://m/debian-security\nSuites: bookworm-security\nComponents: main\n\n\n\
             Enabled: no\nTypes: deb\nURIs: http://off/debian\nSuites: bookworm\nComponents: main\n\n\
             Types: deb\nURIs: https://vendor/apt\nSuites: stable\nComponents: contrib\n\n\
             types: deb\nuris: http://emb/debian\nsuites: trixie\ncomponents: main\nsigned-by:\n -----BEGIN PGP\n .\n abc\n",
        );
        assert_eq!(entries.len(), 4);
        assert_eq!(entries[0].uris, ["http://m/debian", "http://n/debian"]);
        assert_eq!(entries[3].signed_by, None);
        let uris: Vec<_> = debian_mirrors(&entries).into_iter().map(|m| m.uri).collect();
        assert_eq!(uris, ["http://m/debian", "http://n/debian", "http://emb/debian"]);
    }

    #[test]
    fn third_parties_with_debian_suites_come_after_the_archive() {
        let entries = one_line("deb https://vendor/apt bookworm main\ndeb http://m/debian bookworm main\n");
        let uris: Vec<_> = debian_mirrors(&entries).into_iter().map(|m| m.uri).collect();
        assert_eq!(uris, ["http://m/debian", "https://vendor/apt"]);
    }

    #[test]
    fn the_private_list_is_signed_by_the_archive_keyring_if_there_is_one() {
        let m = Mirror { uri: "http://m/debian".into(), signed_by: None, trusted: true };
        assert_eq!(m.source_line("trixie", None), "deb-src [trusted=yes] http://m/debian trixie main\n");
        assert_eq!(
            m.source_line("trixie", Some(Path::new("/k.gpg"))),
            "deb-src [signed-by=/k.gpg] http://m/debian trixie main\n"
        );
        let m = Mirror { uri: "http://m/debian".into(), signed_by: None, trusted: false };
        assert_eq!(m.source_line("trixie", None), "deb-src http://m/debian trixie main\n");
    }

    #[test]
    fn files_are_read_in_apts_order_and_others_are_ignored() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sources.list.d")).unwrap();
        fs::write(dir.path().join("sources.list"), "deb http://a/debian bookworm main\n").unwrap();
        fs::write(dir.path().join("sources.list.d/b.list"), "deb http://b/debian bookworm main\n").unwrap();
        fs::write(
            dir.path().join("sources.list.d/c.sources.disabled"),
            "Types: deb\nURIs: http://c/debian\nSuites: sid\nComponents: main\n",
        )
        .unwrap();
        fs::write(
            dir.path().join("sources.list.d/a.sources"),
            "Types: deb\nURIs: http://d/debian\nSuites: sid\nComponents: main\n",
        )
        .unwrap();
        let uris: Vec<_> = debian_mirrors(&read(dir.path())).into_iter().map(|m| m.uri).collect();
        assert_eq!(uris, ["http://a/debian", "http://d/debian", "http://b/debian"]);
        assert!(read(Path::new("/nonexistent")).is_empty());
    }
}
