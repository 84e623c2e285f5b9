//! Libraries of functions, by name: their text, and what was registered when it was run.
//!
//! Plain data: what runs them is in the room `script`. Each worker's interpreter runs a
//! library's text when it is first called there; so local variables of a library, which
//! its functions share, are each worker's own.

use crate::engine::scripts::{Habits, ScriptFlags};
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A function that a library has registered.
#[derive(Debug)]
pub(crate) struct Function {
    pub name: String,
    pub description: Option<Vec<u8>>,
    pub flags: ScriptFlags,
    pub habits: Arc<Habits>,
}

/// A library.
#[derive(Debug)]
pub(crate) struct Library {
    /// Its number, by which interpreters know what they have run.
    pub number: u64,
    pub name: String,
    /// The whole text, with its first line.
    pub code: Vec<u8>,
    /// Where the program begins: at the end of the first line.
    pub begin: usize,
    pub functions: Vec<Function>,
}

impl Library {
    pub(crate) fn program(&self) -> &[u8] {
        &self.code[self.begin..]
    }
}

/// What is to become of libraries that are there when others are restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    Append,
    Replace,
    Flush,
}

#[derive(Clone, Debug, Default)]
struct Known {
    libraries: BTreeMap<String, Arc<Library>>,
    /// By name in lower case: the library, and the place in it.
    functions: HashMap<String, (Arc<Library>, usize)>,
}

impl Known {
    fn remove(&mut self, name: &str) -> Option<Arc<Library>> {
        let library = self.libraries.remove(name)?;
        for function in &library.functions {
            self.functions.remove(&function.name.to_ascii_lowercase());
        }
        Some(library)
    }

    /// Adds a library; the error says which of its functions is another's already.
    fn add(&mut self, library: Arc<Library>) -> Result<(), String> {
        for function in &library.functions {
            if self.functions.contains_key(&function.name.to_ascii_lowercase()) {
                return Err(format!("ERR Function {} already exists", function.name));
            }
        }
        for (place, function) in library.functions.iter().enumerate() {
            let name = function.name.to_ascii_lowercase();
            self.functions.insert(name, (Arc::clone(&library), place));
        }
        self.libraries.insert(library.name.clone(), library);
        Ok(())
    }
}

/// All libraries.
#[derive(Debug, Default)]
pub(crate) struct Libraries(RwLock<Known>);

impl Libraries {
    /// Adds a library, in the place of one of that name if it may.
    pub(crate) fn load(&self, library: Library, replace: bool) -> Result<(), String> {
        let known = &mut *self.0.write();
        if known.libraries.contains_key(&library.name) && !replace {
            return Err(format!("ERR Library '{}' already exists", library.name));
        }
        let old = known.remove(&library.name);
        let added = known.add(Arc::new(library));
        if added.is_err()
            && let Some(old) = old
        {
            // It was there before.
            let _ = known.add(old);
        }
        added
    }

    /// Adds all of these, or none.
    pub(crate) fn restore(&self, libraries: Vec<Library>, policy: Policy) -> Result<(), String> {
        let known = &mut *self.0.write();
        let mut next = if policy == Policy::Flush { Known::default() } else { known.clone() };
        for library in libraries {
            if next.libraries.contains_key(&library.name) {
                if policy == Policy::Append {
                    return Err(format!("ERR Library {} already exists", library.name));
                }
                next.remove(&library.name);
            }
            next.add(Arc::new(library))?;
        }
        *known = next;
        Ok(())
    }

    /// Whether there is a library of that name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.read().libraries.contains_key(name)
    }

    pub(crate) fn delete(&self, name: &[u8]) -> bool {
        std::str::from_utf8(name).is_ok_and(|name| self.0.write().remove(name).is_some())
    }

    pub(crate) fn flush(&self) {
        *self.0.write() = Known::default();
    }

    /// The function of that name, in any case: its library, and the place in it.
    pub(crate) fn function(&self, name: &[u8]) -> Option<(Arc<Library>, usize)> {
        let name = std::str::from_utf8(name).ok()?.to_ascii_lowercase();
        self.0.read().functions.get(&name).map(|(library, n)| (Arc::clone(library), *n))
    }

    /// All of them, by name.
    pub(crate) fn all(&self) -> Vec<Arc<Library>> {
        self.0.read().libraries.values().map(Arc::clone).collect()
    }

    /// How many libraries there are, how many functions, and their bytes.
    pub(crate) fn count(&self) -> (usize, usize, usize) {
        let known = self.0.read();
        let bytes = known.libraries.values().map(|library| library.code.len()).sum();
        (known.libraries.len(), known.functions.len(), bytes)
    }
}
