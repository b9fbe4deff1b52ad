//! Any bytes as a rule: an answer, never a panic; and what is read prints back as the same rule.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_core::Rule;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match text.parse::<Rule>() {
        Ok(rule) => {
            let printed = rule.to_string();
            assert_eq!(
                printed.parse::<Rule>().as_ref(),
                Ok(&rule),
                "{printed:?} reads differently"
            );
            assert_eq!(printed.parse::<Rule>().map(|again| again.to_string()), Ok(printed));
            assert!(!rule.explain().is_empty());
        }
        Err(error) => {
            let span = error.span();
            assert!(text.get(span).is_some(), "the span is not in the text");
            assert!(error.to_string().len() < 1_024, "an error must be short");
        }
    }
});
