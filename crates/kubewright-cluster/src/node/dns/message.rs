//! Queries, and their answers by the records of the cluster. Pure.

use simple_dns::{
    CLASS, Name, OPCODE, Packet, PacketFlag, QTYPE, RCODE, ResourceRecord, TYPE,
    rdata::{A, CNAME, PTR, RData, SOA, SRV, TXT},
};

use super::zone::{DOMAIN, Record, Zone};

/// The time in seconds for which clients keep records, which is that of CoreDNS.
const TTL: u32 = 5;
/// The maximum size of an answer by UDP, unless the client takes more.
const UDP_ANSWER: u16 = 512;
/// The identifier of queries for the target of an alias. A connection has one query at a time.
const FOLLOW_ID: u16 = 1;

/// How a query is answered.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The answer.
    Reply(Vec<u8>),
    /// Another server has the answer.
    Forward,
    /// The answer is an alias, and another server has the answer to the query for its target.
    Follow { reply: Vec<u8>, rest: Vec<u8> },
}

/// Answers a query by the records of the cluster, which `records` returns for each existing name. Returns `None` for
/// what isn't a query.
pub(super) fn answer(query: &[u8], records: impl Fn(&str) -> Option<Vec<Record>>) -> Option<Outcome> {
    let parsed = Packet::parse(query).ok().filter(|packet| !packet.has_flags(PacketFlag::RESPONSE))?;
    let mut reply = reply_to(&parsed);
    let [question] = &parsed.questions[..] else {
        *reply.rcode_mut() = RCODE::FormatError;
        return encode(&reply);
    };
    if parsed.opcode() != OPCODE::StandardQuery {
        *reply.rcode_mut() = RCODE::NotImplemented;
        return encode(&reply);
    }
    let name = question.qname.to_string().to_lowercase();
    // The addresses of pods and Services may be in ranges that other servers know, too.
    let is_reverse = name.ends_with(".in-addr.arpa");
    let is_known = is_reverse && records(&name).is_some();
    if !(is_known || Zone::contains(&name)) {
        return Some(Outcome::Forward);
    }
    reply.set_flags(PacketFlag::AUTHORITATIVE_ANSWER);
    let mut name = name;
    // A chain of aliases within the cluster has an end.
    for _ in 0..8 {
        let Some(found) = records(&name) else {
            if reply.answers.is_empty() {
                *reply.rcode_mut() = RCODE::NameError;
            }
            break;
        };
        let target = found.iter().find_map(|record| match record {
            Record::Alias(target) => Some(target.clone()),
            _ => None,
        });
        let matching = found
            .into_iter()
            .filter_map(|record| Some(ResourceRecord::new(owned(&name)?, CLASS::IN, TTL, data(record)?)));
        let is_asked =
            |record: &ResourceRecord<'_>| record.match_qtype(question.qtype) || matches!(record.rdata, RData::CNAME(_));
        reply.answers.extend(matching.filter(is_asked));
        let Some(target) = target.filter(|_| question.qtype != QTYPE::TYPE(TYPE::CNAME)) else { break };
        if !Zone::contains(&target) {
            let mut rest = Packet::new_query(FOLLOW_ID);
            rest.set_flags(PacketFlag::RECURSION_DESIRED);
            let mut further = question.clone();
            further.qname = owned(&target)?;
            rest.questions.push(further);
            return Some(Outcome::Follow { reply: bytes(&reply)?, rest: bytes(&rest)? });
        }
        name = target;
    }
    if reply.answers.is_empty() {
        reply.name_servers.extend(authority());
    }
    reply.additional_records = addresses_of_targets(&reply, &records);
    encode(&reply)
}

/// Returns the addresses of the hosts that answers about services name, each once, which saves clients the queries for
/// them.
fn addresses_of_targets(
    reply: &Packet<'_>,
    records: &impl Fn(&str) -> Option<Vec<Record>>,
) -> Vec<ResourceRecord<'static>> {
    let mut targets: Vec<String> = Vec::new();
    for answer in &reply.answers {
        if let RData::SRV(service) = &answer.rdata {
            let target = service.target.to_string();
            if !targets.contains(&target) {
                targets.push(target);
            }
        }
    }
    let addresses = targets.iter().flat_map(|target| {
        let found = records(target).into_iter().flatten();
        let addresses = found.filter(|record| matches!(record, Record::Address(_)));
        addresses.filter_map(|record| Some(ResourceRecord::new(owned(target)?, CLASS::IN, TTL, data(record)?)))
    });
    addresses.collect()
}

/// Adds what another server has answered for the target of an alias.
pub(super) fn complete(reply: &[u8], more: &[u8]) -> Vec<u8> {
    let joined = || {
        let (mut reply, more) = (Packet::parse(reply).ok()?, Packet::parse(more).ok()?);
        reply.answers.extend(more.answers);
        bytes(&reply)
    };
    joined().unwrap_or_else(|| reply.to_vec())
}

/// Returns the answer to a query that no server has answered.
pub(super) fn cannot_answer(query: &[u8]) -> Vec<u8> {
    let failed = || {
        let parsed = Packet::parse(query).ok()?;
        let mut reply = reply_to(&parsed);
        *reply.rcode_mut() = RCODE::ServerFailure;
        bytes(&reply)
    };
    failed().unwrap_or_default()
}

/// Returns an answer as it is sent by UDP: without its records if it is larger than the client takes, which then asks
/// by TCP.
pub(super) fn fit(query: &[u8], reply: Vec<u8>) -> Vec<u8> {
    let limit = Packet::parse(query).ok().and_then(|query| query.opt().map(|opt| opt.udp_packet_size)).unwrap_or(0);
    if reply.len() <= usize::from(limit.max(UDP_ANSWER)) {
        return reply;
    }
    let shortened = || {
        let mut short = Packet::parse(&reply).ok()?;
        short.answers.clear();
        short.additional_records.clear();
        short.set_flags(PacketFlag::TRUNCATION);
        bytes(&short)
    };
    shortened().unwrap_or_default()
}

fn reply_to<'a>(query: &Packet<'a>) -> Packet<'a> {
    let mut reply = Packet::new_reply(query.id());
    *reply.opcode_mut() = query.opcode();
    reply.set_flags(PacketFlag::RESPONSE | PacketFlag::RECURSION_AVAILABLE);
    if query.has_flags(PacketFlag::RECURSION_DESIRED) {
        reply.set_flags(PacketFlag::RECURSION_DESIRED);
    }
    reply.questions.clone_from(&query.questions);
    if let Some(opt) = query.opt() {
        let mut opt = opt.clone();
        opt.opt_codes.clear();
        *reply.opt_mut() = Some(opt);
    }
    reply
}

fn encode(reply: &Packet<'_>) -> Option<Outcome> {
    bytes(reply).map(Outcome::Reply)
}

fn bytes(packet: &Packet<'_>) -> Option<Vec<u8>> {
    packet.build_bytes_vec_compressed().ok()
}

fn owned(name: &str) -> Option<Name<'static>> {
    Name::new(name).ok().map(Name::into_owned)
}

fn data(record: Record) -> Option<RData<'static>> {
    Some(match record {
        Record::Address(address) => RData::A(A::from(address)),
        Record::Service(port, weight, target) => RData::SRV(SRV { priority: 0, weight, port, target: owned(&target)? }),
        Record::Alias(target) => RData::CNAME(CNAME(owned(&target)?)),
        Record::Pointer(name) => RData::PTR(PTR(owned(&name)?)),
        Record::Text(text) => RData::TXT(TXT::new().with_string(text).ok()?),
    })
}

/// Returns the record that says for how long clients keep that a name has no records.
fn authority() -> Option<ResourceRecord<'static>> {
    let (server, mailbox) = (owned(&format!("ns.dns.{DOMAIN}"))?, owned(&format!("hostmaster.{DOMAIN}"))?);
    let soa =
        SOA { mname: server, rname: mailbox, serial: 1, refresh: 7200, retry: 1800, expire: 86_400, minimum: TTL };
    Some(ResourceRecord::new(owned(DOMAIN)?, CLASS::IN, TTL, RData::SOA(soa)))
}

#[cfg(test)]
mod tests {
    use simple_dns::{QCLASS, Question};

    use super::*;

    fn query(name: &str, kind: TYPE) -> Vec<u8> {
        let mut packet = Packet::new_query(7);
        packet.set_flags(PacketFlag::RECURSION_DESIRED);
        let name = Name::new(name).unwrap().into_owned();
        packet.questions.push(Question::new(name, QTYPE::TYPE(kind), QCLASS::CLASS(CLASS::IN), false));
        packet.build_bytes_vec().unwrap()
    }

    fn records(name: &str) -> Option<Vec<Record>> {
        Some(match name {
            "web.shop.svc.cluster.local" => vec![Record::Address([127, 96, 0, 1].into())],
            "alias.shop.svc.cluster.local" => vec![Record::Alias("web.shop.svc.cluster.local".into())],
            "out.shop.svc.cluster.local" => vec![Record::Alias("example.com".into())],
            "loop.shop.svc.cluster.local" => vec![Record::Alias("loop.shop.svc.cluster.local".into())],
            "_sql._tcp.db.shop.svc.cluster.local" => vec![
                Record::Address([127, 1, 0, 1].into()),
                Record::Service(1, 50, "db-0.db.shop.svc.cluster.local".into()),
                Record::Service(2, 50, "db-0.db.shop.svc.cluster.local".into()),
            ],
            "db-0.db.shop.svc.cluster.local" => vec![
                Record::Address([127, 1, 0, 1].into()),
                Record::Service(1, 100, "db-0.db.shop.svc.cluster.local".into()),
            ],
            "many.shop.svc.cluster.local" => (0..100).map(|n| Record::Address([127, 1, 0, n].into())).collect(),
            _ => return None,
        })
    }

    fn reply(name: &str, kind: TYPE) -> Vec<u8> {
        match answer(&query(name, kind), records) {
            Some(Outcome::Reply(reply)) => reply,
            other => panic!("{name}: {other:?}"),
        }
    }

    #[test]
    fn names_are_answered_with_their_records() {
        let bytes = reply("WEB.shop.svc.cluster.local", TYPE::A);
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!((packet.id(), packet.rcode(), packet.answers.len()), (7, RCODE::NoError, 1));
        assert!(
            packet.has_flags(PacketFlag::RESPONSE | PacketFlag::AUTHORITATIVE_ANSWER | PacketFlag::RECURSION_DESIRED)
        );
        assert!(matches!(&packet.answers[0].rdata, RData::A(a) if a.address == u32::from_be_bytes([127, 96, 0, 1])));
        let bytes = reply("alias.shop.svc.cluster.local", TYPE::A);
        assert_eq!(Packet::parse(&bytes).unwrap().answers.len(), 2, "an alias, and the address of its target");
    }

    #[test]
    fn answers_about_services_have_the_addresses_of_their_hosts() {
        let bytes = reply("_sql._tcp.db.shop.svc.cluster.local", TYPE::SRV);
        let packet = Packet::parse(&bytes).unwrap();
        let ports: Vec<_> = packet
            .answers
            .iter()
            .map(|answer| match &answer.rdata {
                RData::SRV(service) => (service.port, service.weight),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(ports, [(1, 50), (2, 50)]);
        let [one] = &packet.additional_records[..] else { panic!("{packet:?}") };
        assert_eq!(one.name.to_string(), "db-0.db.shop.svc.cluster.local");
        assert!(matches!(&one.rdata, RData::A(a) if a.address == u32::from_be_bytes([127, 1, 0, 1])));
        let bytes = reply("_sql._tcp.db.shop.svc.cluster.local", TYPE::A);
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!((packet.answers.len(), packet.additional_records.len()), (1, 0));
    }

    #[test]
    fn missing_names_and_types_differ() {
        for (name, kind, code) in [
            ("web.shop.svc.cluster.local", TYPE::AAAA, RCODE::NoError),
            ("absent.shop.svc.cluster.local", TYPE::A, RCODE::NameError),
        ] {
            let bytes = reply(name, kind);
            let packet = Packet::parse(&bytes).unwrap();
            assert_eq!((packet.rcode(), packet.answers.len(), packet.name_servers.len()), (code, 0, 1), "{name}");
        }
    }

    #[test]
    fn other_domains_are_asked_elsewhere() {
        assert!(matches!(answer(&query("example.com", TYPE::A), records), Some(Outcome::Forward)));
        let Some(Outcome::Follow { reply, rest }) = answer(&query("out.shop.svc.cluster.local", TYPE::A), records)
        else {
            panic!()
        };
        assert_eq!(Packet::parse(&rest).unwrap().questions[0].qname.to_string(), "example.com");
        let mut more = Packet::new_reply(1);
        more.answers.push(ResourceRecord::new(owned("example.com").unwrap(), CLASS::IN, 9, RData::A(A { address: 1 })));
        let whole = complete(&reply, &more.build_bytes_vec().unwrap());
        let whole = Packet::parse(&whole).unwrap();
        assert_eq!((whole.id(), whole.answers.len()), (7, 2));
        assert_eq!(complete(&reply, b"invalid"), reply);
    }

    #[test]
    fn large_answers_are_cut_and_invalid_ones_are_dropped() {
        let (asked, bytes) =
            (query("many.shop.svc.cluster.local", TYPE::A), reply("many.shop.svc.cluster.local", TYPE::A));
        let short = fit(&asked, bytes.clone());
        let packet = Packet::parse(&short).unwrap();
        assert!(bytes.len() > 512 && packet.has_flags(PacketFlag::TRUNCATION) && packet.answers.is_empty());
        assert!(answer(b"invalid", records).is_none() && answer(&bytes, records).is_none(), "an answer is no query");
        assert!(matches!(answer(&query("loop.shop.svc.cluster.local", TYPE::A), records), Some(Outcome::Reply(_))));
        let failed = cannot_answer(&query("example.com", TYPE::A));
        assert_eq!(Packet::parse(&failed).unwrap().rcode(), RCODE::ServerFailure);
    }
}
