//! Panics during a run: collected instead of printed.

use std::{cell::RefCell, panic, sync::Once};

thread_local! {
    /// The panics on this thread, if it executes a run.
    static PANICS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Begins to collect the panics of this thread.
pub(crate) fn collect() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let collected = PANICS.with_borrow_mut(|panics| {
                panics.as_mut().map(|panics| {
                    let text = info.payload_as_str().unwrap_or("a panic without a message");
                    let place = info.location().map(|it| format!(" at {}:{}", it.file(), it.line()));
                    panics.push(format!("{text}{}", place.unwrap_or_default()));
                })
            });
            if collected.is_none() {
                print(info);
            }
        }));
    });
    PANICS.set(Some(Vec::new()));
}

/// Returns the panics since the last call.
pub(crate) fn take() -> Vec<String> {
    PANICS.with_borrow_mut(|panics| panics.as_mut().map(std::mem::take)).unwrap_or_default()
}

/// Ends the collection.
pub(crate) fn end() {
    PANICS.set(None);
}
