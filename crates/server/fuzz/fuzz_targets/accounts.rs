//! Any rules of a user: what `ACL LIST` tells of them leads to the same rules, and to the
//! same verdict on every command.

#![no_main]

use libfuzzer_sys::fuzz_target;
use snug_server::rules_lead_back;

fuzz_target!(|bytes: &[u8]| rules_lead_back(bytes));
