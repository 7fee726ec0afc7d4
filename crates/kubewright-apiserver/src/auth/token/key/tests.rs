use super::*;

/// Pairs of the same key in PKCS#8 and in the older form, with the key's name as OpenSSL computes it. They secure
/// nothing.
const KEYS: [(&str, &str, &str, &str); 2] = [
    (include_str!("p256.pem"), include_str!("p256-sec1.pem"), "ES256", "luPEs_DxsixNJUv-Cv-QcI-YNAPMbTeNF3iJFxvqn78"),
    (include_str!("rsa.pem"), include_str!("rsa-pkcs1.pem"), "RS256", "E1-29busXcLy9fcNbiSnTt5B_rUn7Cy19WXwa1hc8-A"),
];

#[test]
fn keys_are_read_in_each_form() {
    for (pkcs8, older, algorithm, id) in KEYS {
        let (key, same) = (Key::from_pem(pkcs8).unwrap(), Key::from_pem(older).unwrap());
        assert_eq!((key.algorithm(), key.id()), (algorithm, id));
        assert_eq!(key.public(), same.public());
        let signature = key.sign(b"message").unwrap();
        same.verify(b"message", &signature).unwrap();
        assert!(same.verify(b"another message", &signature).is_err());
    }
    let public = rcgen::KeyPair::generate().unwrap().public_key_pem();
    for wrong in ["", "not a key", &public] {
        assert!(Key::from_pem(wrong).is_none(), "{wrong}");
    }
}

#[test]
fn the_public_members_of_an_rsa_key_verify_its_signatures() {
    let key = Key::from_pem(KEYS[1].0).unwrap();
    let public = key.public();
    let member = |name: &str| BASE64.decode(public[name].as_str().unwrap()).unwrap();
    let components = PublicKeyComponents { n: member("n"), e: member("e") };
    components.verify(&RSA_PKCS1_2048_8192_SHA256, b"message", &key.sign(b"message").unwrap()).unwrap();
    assert_eq!((&public["kty"], &public["alg"]), (&"RSA".into(), &"RS256".into()));
}
