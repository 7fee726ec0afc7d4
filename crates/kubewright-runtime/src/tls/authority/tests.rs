//! Certificate renewal over years of simulated time.

use std::sync::Arc;

use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    pki_types::{ServerName, UnixTime},
};

use super::*;

const DAY: SignedDuration = SignedDuration::from_hours(24);

fn start() -> Timestamp {
    "2026-01-30T10:00:00Z".parse().unwrap()
}

fn names() -> Vec<String> {
    ["hook.default.svc", "127.0.0.1"].map(String::from).into()
}

/// Returns the key material after one check of `found`.
fn look(found: &KeyMaterial, now: Timestamp) -> KeyMaterial {
    renewed(&Keys::System, Some(found), None, "", &names(), now).unwrap().unwrap_or_else(|| found.clone())
}

fn fresh(now: Timestamp) -> KeyMaterial {
    renewed(&Keys::System, None, None, "", &names(), now).unwrap().expect("there was nothing")
}

/// Returns whether a client that trusts these authorities accepts this certificate at this time.
fn is_believed(authorities: &str, certificate: &str, name: &str, now: Timestamp) -> bool {
    let mut roots = RootCertStore::empty();
    for der in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
        roots.add(der.unwrap()).unwrap();
    }
    let provider = Arc::new(crypto_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build().unwrap();
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
    let time = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now.as_second().try_into().unwrap()));
    let name = ServerName::try_from(name.to_owned()).unwrap();
    verifier.verify_server_cert(&certificate, &[], &name, &[], time).is_ok()
}

#[track_caller]
fn assert_sound(material: &KeyMaterial, now: Timestamp) {
    for name in names() {
        assert!(is_believed(&material.authorities, &material.certificate, &name, now), "{name} at {now}");
    }
    assert!(CertifiedKey::read(material.certificate.as_bytes(), material.key.as_bytes()).unwrap().is_valid_at(now));
}

#[test]
fn valid_certificates_are_kept() {
    let made = fresh(start());
    assert_sound(&made, start());
    assert!(!is_believed(&made.authorities, &made.certificate, "other.default.svc", start()));
    assert_eq!(renewed(&Keys::System, Some(&made), None, "", &names(), start()).unwrap(), None);
    assert_eq!(renewed(&Keys::System, Some(&made), Some(&made), "", &names(), start() + 59 * DAY).unwrap(), None);
}

/// Checked each week for six years: the certificate served a week ago is accepted by clients that trust today's
/// authorities, and today's certificate by clients that trust the authorities of a week ago. So the order in which
/// servers and clients observe a change doesn't matter.
#[test]
fn six_years_of_renewals_never_leave_a_gap() {
    let mut held = fresh(start());
    let (mut authorities, mut certificates) = (1, 1);
    for day in (7..6 * 365).step_by(7) {
        let now = start() + day * DAY;
        let next = look(&held, now);
        assert_sound(&next, now);
        for name in names() {
            assert!(
                is_believed(&next.authorities, &held.certificate, &name, now),
                "who is late serves well, day {day}"
            );
            assert!(is_believed(&held.authorities, &next.certificate, &name, now), "who is late believes, day {day}");
        }
        let count = super::authorities(&next.authorities).len();
        assert!((1..=2).contains(&count), "{count} authorities on day {day}");
        authorities += usize::from(next.authority_key != held.authority_key);
        certificates += usize::from(next.certificate != held.certificate);
        held = next;
    }
    assert!((4..=6).contains(&authorities), "{authorities}");
    assert!((33..=38).contains(&certificates), "{certificates}");
}

#[test]
fn expired_certificates_are_recreated_and_a_valid_authority_is_kept() {
    let old = fresh(start());
    let now = start() + 1000 * DAY;
    let new = look(&old, now);
    assert_sound(&new, now);
    assert_eq!(super::authorities(&new.authorities).len(), 1, "what has expired is trusted no longer");
    let now = start() + 100 * DAY;
    let new = look(&old, now);
    assert_sound(&new, now);
    assert_eq!(new.authority_key, old.authority_key, "the authority is still good");
}

#[test]
fn changed_certificates_are_replaced_and_others_stay_trusted() {
    let (good, other) = (fresh(start()), fresh(start() + HOUR));
    let now = start() + DAY;
    let foreign = |from: &KeyMaterial| {
        [
            KeyMaterial { certificate: from.certificate.clone(), ..good.clone() },
            KeyMaterial { key: from.key.clone(), ..good.clone() },
            KeyMaterial { authority_key: from.authority_key.clone(), ..good.clone() },
            KeyMaterial { authorities: from.authorities.clone(), ..good.clone() },
            KeyMaterial { certificate: from.certificate.clone(), key: from.key.clone(), ..good.clone() },
        ]
    };
    let garbage = KeyMaterial {
        authorities: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----".into(),
        authority_key: "no key".into(),
        certificate: "-----BEGIN".into(),
        key: String::new(),
    };
    let tampered = foreign(&other).into_iter().chain(foreign(&garbage)).chain([garbage, KeyMaterial::default()]);
    for (number, tampered) in tampered.enumerate() {
        let healed = renewed(&Keys::System, Some(&tampered), Some(&good), "", &names(), now).unwrap();
        let healed = healed.unwrap_or_else(|| panic!("case {number} is not healed"));
        assert_sound(&healed, now);
        for name in names() {
            assert!(is_believed(&healed.authorities, &good.certificate, &name, now), "case {number}");
        }
        assert_eq!(
            renewed(&Keys::System, Some(&healed), Some(&good), "", &names(), now).unwrap(),
            None,
            "case {number} is healed once"
        );
    }
}

#[test]
fn deleted_key_material_is_restored() {
    let good = fresh(start());
    assert_eq!(renewed(&Keys::System, None, Some(&good), "", &names(), start() + DAY).unwrap(), Some(good));
}

#[test]
fn another_authority_does_not_replace_those_that_are_trusted() {
    let (old, new, now) = (fresh(start()), fresh(start() + HOUR), start() + DAY);
    for (known, configured) in [(Some(&old), ""), (None, &*old.authorities)] {
        let both = renewed(&Keys::System, Some(&new), known, configured, &names(), now).unwrap();
        let both = both.expect("an authority is forgotten");
        assert_eq!((&both.certificate, &both.authority_key), (&new.certificate, &new.authority_key));
        for material in [&old, &new] {
            assert!(is_believed(&both.authorities, &material.certificate, "127.0.0.1", now));
        }
        assert_eq!(renewed(&Keys::System, Some(&both), known, configured, &names(), now).unwrap(), None);
        let later = start() + 731 * DAY;
        let renewed = renewed(&Keys::System, Some(&both), known, configured, &names(), later).unwrap().unwrap();
        assert!(!is_believed(&renewed.authorities, &old.certificate, "127.0.0.1", now), "it has expired");
    }
    let lost = renewed(&Keys::System, None, None, &old.authorities, &names(), now).unwrap().unwrap();
    assert_sound(&lost, now);
    assert!(is_believed(&lost.authorities, &old.certificate, "127.0.0.1", now));
}

#[test]
fn what_clients_trust_of_others_is_not_kept() {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = common_name("another issuer");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let other = params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
    let good = fresh(start());
    assert_eq!(renewed(&Keys::System, Some(&good), None, &other, &names(), start()).unwrap(), None);
    assert_eq!(renewed(&Keys::System, Some(&good), None, "garbage", &names(), start()).unwrap(), None);
}

#[test]
fn a_clock_that_was_wrong_does_not_stop_it() {
    let early = start() - 400 * DAY;
    let made_in_the_future = fresh(start());
    let healed = look(&made_in_the_future, early);
    assert_sound(&healed, early);
}

#[test]
fn names_are_added_and_those_of_others_kept() {
    let good = fresh(start());
    let more = renewed(&Keys::System, Some(&good), None, "", &["::1".into(), "127.0.0.1".into()], start() + DAY)
        .unwrap()
        .unwrap();
    assert_sound(&more, start() + DAY);
    assert!(is_believed(&good.authorities, &more.certificate, "::1", start() + DAY));
    assert_eq!(renewed(&Keys::System, Some(&more), None, "", &names(), start() + DAY).unwrap(), None);
}

#[test]
fn keys_are_not_shown() {
    let made = fresh(start());
    assert_eq!(format!("{made:?}"), "KeyMaterial { .. }");
}
