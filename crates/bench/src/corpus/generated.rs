//! The kinds of values that are made from a seed: what shops, sites and services keep,
//! as their libraries write it.

use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine};

use super::Pair;
use super::draw::{CITIES, Draw, capital};

type Bytes = Vec<u8>;

fn pair(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Pair {
    (key.into(), value.into())
}

/// A user's profile as JSON, by user name.
pub(super) fn profiles(draw: &mut Draw, n: u64) -> Pair {
    let user = draw.user(n);
    let (city, country) = draw.pick(CITIES);
    let value = format!(
        r#"{{"username":"{user}","name":"{}","email":"{}","city":"{city}","country":"{country}","bio":"{}","verified":{},"followers":{},"following":{},"joined":"{}","theme":"{}"}}"#,
        draw.full_name(),
        draw.email(n),
        draw.text(40),
        draw.one_in(5),
        draw.skewed(100_000),
        draw.skewed(2000),
        draw.date(),
        draw.pick(&["light", "dark", "system"]),
    );
    pair(format!("profile:{user}"), value)
}

/// An article as HTML, by its slug.
pub(super) fn articles(draw: &mut Draw, n: u64) -> Pair {
    let title: Vec<&str> = (0..draw.between(4, 9)).map(|_| draw.word()).collect();
    let mut html = format!(
        "<article id=\"post-{n}\"><h1>{}</h1>\n<p class=\"byline\">By <a href=\"/author/{}\">{}</a>, <time datetime=\"{}\"></time></p>\n",
        capital(&title.join(" ")),
        draw.user(n),
        draw.full_name(),
        draw.date()
    );
    for _ in 0..draw.between(2, 7) {
        let bytes = draw.between(120, 500);
        html += &format!("<p>{}</p>\n", draw.text(bytes));
    }
    html += &format!(
        "<footer><a class=\"tag\" href=\"/tag/{0}\">{0}</a></footer></article>\n",
        draw.word()
    );
    pair(format!("article/{}", title.join("-")), html)
}

/// A product as JSON, by an SKU of letters.
pub(super) fn skus(draw: &mut Draw, n: u64) -> Pair {
    let color = draw.pick(&["BLU", "RED", "GRN", "BLK", "WHT", "YEL", "GRY", "NVY"]);
    let size = draw.pick(&["XS", "S", "M", "L", "XL", "XXL"]);
    let name: String =
        (0..4).map(|at| char::from(b'A' + (n * 7919 / 26u64.pow(at) % 26) as u8)).collect();
    let price = draw.between(199, 29_999);
    let value = format!(
        r#"{{"sku":"{name}-{color}-{size}","title":"{} {}","price":{}.{:02},"currency":"EUR","stock":{},"color":"{color}","size":"{size}","weight_g":{},"categories":["{}","{}"],"updated_at":{}}}"#,
        capital(draw.word()),
        draw.word(),
        price / 100,
        price % 100,
        draw.skewed(500),
        draw.between(50, 4000),
        draw.word(),
        draw.word(),
        draw.moment() / 1000,
    );
    pair(format!("sku:{name}-{color}-{size}"), value)
}

/// A web session as JSON, by UUID.
pub(super) fn sessions(draw: &mut Draw, n: u64) -> Pair {
    let value = format!(
        r#"{{"cookie":{{"originalMaxAge":86400000,"expires":"{}","httpOnly":true,"path":"/"}},"user":{{"id":{},"name":"{}","roles":["{}"]}},"csrf":"{}","flash":{{}},"cart":[{}],"ip":"{}"}}"#,
        draw.date(),
        draw.below(1_000_000),
        draw.user(n),
        draw.pick(&["user", "admin", "editor"]),
        draw.letters(24),
        (0..draw.skewed(5))
            .map(|_| format!("{{\"id\":{},\"qty\":{}}}", draw.below(99_999), draw.between(1, 5)))
            .collect::<Vec<_>>()
            .join(","),
        draw.ip(),
    );
    pair(format!("session:{}", draw.uuid()), value)
}

/// Five kinds of values under keys that tell nothing.
pub(super) fn cache_md5(draw: &mut Draw, n: u64) -> Pair {
    let value = match draw.below(5) {
        0 => profiles(draw, n).1,
        1 => articles(draw, n).1,
        2 => php(draw, n).1,
        3 => csv(draw, n).1,
        _ => pickles(draw, n).1,
    };
    pair(format!("cache:{}", draw.hex(32)), value)
}

/// E-mail addresses by user number.
pub(super) fn emails(draw: &mut Draw, n: u64) -> Pair {
    pair(format!("user:{n}:email"), draw.email(n))
}

/// JSON web tokens by user name.
pub(super) fn jwts(draw: &mut Draw, n: u64) -> Pair {
    let head = BASE64_URL_SAFE_NO_PAD.encode(br#"{"alg":"HS256","typ":"JWT"}"#);
    let at = draw.moment() / 1000;
    let body = format!(
        r#"{{"sub":"{}","name":"{}","iss":"https://auth.example.com/","aud":"shop-api","iat":{at},"exp":{},"scope":"{}","jti":"{}"}}"#,
        draw.between(10_000, 9_999_999),
        draw.full_name(),
        at + 3600,
        draw.pick(&["read", "read write", "read write admin"]),
        draw.uuid(),
    );
    let sign = BASE64_URL_SAFE_NO_PAD.encode(draw.bytes(32));
    let user = draw.user(n);
    pair(format!("jwt:{user}"), format!("{head}.{}.{sign}", BASE64_URL_SAFE_NO_PAD.encode(body)))
}

/// Fragments of pages, as Django caches them.
pub(super) fn fragments(draw: &mut Draw, n: u64) -> Pair {
    let mut html = String::from(
        "<aside class=\"sidebar card shadow-sm\">\n  <h3 class=\"card-title\">Trending</h3>\n  <ul class=\"list-group list-group-flush\">\n",
    );
    for _ in 0..draw.between(4, 12) {
        html += &format!(
            "    <li class=\"list-group-item\"><a href=\"/p/{}/{}\">{}</a> <span class=\"badge bg-secondary\">{}</span></li>\n",
            draw.below(99_999),
            draw.words(3, "-"),
            draw.sentence(5),
            draw.skewed(900)
        );
    }
    html += "  </ul>\n</aside>\n";
    let _ = n;
    pair(format!(":1:template.cache.sidebar.{}", draw.hex(32)), html)
}

/// Lines of a web server's log.
pub(super) fn logs(draw: &mut Draw, n: u64) -> Pair {
    let host = format!("{}-{}", draw.pick(&["web", "api", "edge", "worker"]), draw.word());
    let line = format!(
        r#"{} - {} [{}] "{} /{}/{}?page={} HTTP/1.1" {} {} "https://www.example.com/{}" "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/{}.0.0.0 Safari/537.36" rt=0.{:03}"#,
        draw.ip(),
        if draw.one_in(3) { draw.user(n) } else { "-".into() },
        draw.date(),
        draw.pick(&["GET", "GET", "GET", "POST", "PUT"]),
        draw.word(),
        draw.words(2, "-"),
        draw.skewed(30),
        draw.pick(&[200, 200, 200, 200, 304, 404, 500]),
        draw.skewed(90_000),
        draw.word(),
        draw.between(110, 132),
        draw.below(1000),
    );
    pair(format!("log:{host}:{n:08x}"), line)
}

/// Rows of a table, as CSV.
pub(super) fn csv(draw: &mut Draw, n: u64) -> Pair {
    let (city, country) = draw.pick(CITIES);
    let row = format!(
        "{},{},\"{}\",{city},{country},{}.{:02},{},{},{:.6},{:.6},{}",
        100_000 + n,
        &draw.date()[..10],
        draw.full_name(),
        draw.below(9000),
        draw.below(100),
        draw.pick(&["paid", "open", "refunded", "cancelled"]),
        draw.pick(&["visa", "paypal", "sepa", "mastercard"]),
        draw.share() * 180.0 - 90.0,
        draw.share() * 360.0 - 180.0,
        draw.words(3, " "),
    );
    pair(format!("row:orders:{}", 100_000 + n), row)
}

/// Orders as XML.
pub(super) fn xml(draw: &mut Draw, n: u64) -> Pair {
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<order xmlns=\"urn:example:order:1\" id=\"{n}\" date=\"{}\">\n  <customer><name>{}</name><email>{}</email></customer>\n  <items>\n",
        draw.date(),
        draw.full_name(),
        draw.email(n)
    );
    for _ in 0..draw.between(1, 8) {
        xml += &format!(
            "    <item sku=\"{}\" quantity=\"{}\"><title>{}</title><price currency=\"EUR\">{}.{:02}</price></item>\n",
            draw.digits(8),
            draw.between(1, 4),
            draw.words(3, " "),
            draw.below(300),
            draw.below(100)
        );
    }
    xml += "  </items>\n</order>\n";
    pair(format!("order/{}/{n}.xml", draw.word()), xml)
}

/// What pickle (protocol 4) makes of a dictionary, as Django's cache stores it.
pub(super) fn pickles(draw: &mut Draw, n: u64) -> Pair {
    let mut body = Vec::new();
    let text = |body: &mut Bytes, text: &str| {
        body.extend_from_slice(&[0x8c, text.len() as u8]);
        body.extend_from_slice(text.as_bytes());
        body.push(0x94);
    };
    body.extend_from_slice(b"}\x94(");
    text(&mut body, "username");
    let user = draw.user(n);
    text(&mut body, &user);
    text(&mut body, "permissions");
    body.extend_from_slice(b"]\x94(");
    for _ in 0..draw.between(1, 6) {
        let word = format!(
            "{}.{}_{}",
            draw.pick(&["shop", "auth", "blog"]),
            draw.pick(&["add", "change", "view", "delete"]),
            draw.word()
        );
        text(&mut body, &word);
    }
    body.push(b'e');
    text(&mut body, "last_seen");
    body.push(b'G');
    body.extend_from_slice(&(draw.moment() as f64 / 1000.0).to_be_bytes());
    text(&mut body, "user_id");
    body.push(b'J');
    body.extend_from_slice(&(draw.below(9_000_000) as u32).to_le_bytes());
    text(&mut body, "is_active");
    body.extend_from_slice(b"\x88u.");
    let mut value = b"\x80\x04\x95".to_vec();
    value.extend_from_slice(&(body.len() as u64).to_le_bytes());
    value.extend_from_slice(&body);
    pair(format!(":1:views.decorators.cache.cache_page.{}", draw.hex(32)), value)
}

fn msgpack_text(out: &mut Bytes, text: &str) {
    match text.len() {
        len @ ..32 => out.push(0xa0 | len as u8),
        len => out.extend_from_slice(&[0xd9, len as u8]),
    }
    out.extend_from_slice(text.as_bytes());
}

/// Events in MessagePack.
pub(super) fn msgpack(draw: &mut Draw, n: u64) -> Pair {
    let mut out = vec![0x87];
    for (name, value) in [
        ("type", draw.pick(&["click", "view", "purchase", "scroll"]).to_owned()),
        ("page", format!("/{}/{}", draw.word(), draw.word())),
        ("browser", draw.pick(&["chrome", "firefox", "safari"]).to_owned()),
        ("visitor", draw.user(n)),
    ] {
        msgpack_text(&mut out, name);
        msgpack_text(&mut out, &value);
    }
    msgpack_text(&mut out, "at");
    out.push(0xcf);
    out.extend_from_slice(&draw.moment().to_be_bytes());
    msgpack_text(&mut out, "x");
    out.push(0xcd);
    out.extend_from_slice(&(draw.below(1920) as u16).to_be_bytes());
    msgpack_text(&mut out, "y");
    out.push(0xcd);
    out.extend_from_slice(&(draw.below(1080) as u16).to_be_bytes());
    pair(format!("ev:{}:{n}", draw.word()), out)
}

fn varint(out: &mut Bytes, mut number: u64) {
    while number >= 128 {
        out.push(number as u8 | 128);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Messages of protocol buffers.
pub(super) fn protobuf(draw: &mut Draw, n: u64) -> Pair {
    let mut out = Vec::new();
    for (tag, number) in
        [(1, 5_000_000 + n), (2, draw.moment()), (3, draw.skewed(2000)), (7, draw.below(2))]
    {
        varint(&mut out, tag << 3);
        varint(&mut out, number);
    }
    for (tag, text) in [
        (4, draw.full_name()),
        (5, draw.email(n)),
        (6, draw.words(4, " ")),
        (10, draw.pick(CITIES).0.to_owned()),
    ] {
        varint(&mut out, tag << 3 | 2);
        varint(&mut out, text.len() as u64);
        out.extend_from_slice(text.as_bytes());
    }
    out.push(8 << 3 | 1);
    out.extend_from_slice(&(draw.share() * 100.0).to_le_bytes());
    pair(format!("account.{}", draw.letters(10)), out)
}

/// What PHP's `serialize` makes of a session.
pub(super) fn php(draw: &mut Draw, n: u64) -> Pair {
    let (user, name, token) = (draw.user(n), draw.full_name(), draw.letters(40));
    let s = |text: &str| format!("s:{}:\"{text}\";", text.len());
    let value = format!(
        "a:6:{{{}{}{}{}{}{}{}i:{};{}a:2:{{{}a:0:{{}}{}a:0:{{}}}}{}b:{};{}d:{};}}",
        s("_token"),
        s(&token),
        s("user"),
        s(&user),
        s("name"),
        s(&name),
        s("last_activity"),
        draw.moment() / 1000,
        s("_flash"),
        s("old"),
        s("new"),
        s("remember"),
        draw.below(2),
        s("score"),
        draw.below(1000) as f64 / 8.0,
    );
    pair(format!("PHPREDIS_SESSION:{}", draw.letters(26).to_lowercase()), value)
}

/// Embeddings: 128 floats of 32 bits.
pub(super) fn embeddings(draw: &mut Draw, n: u64) -> Pair {
    let value: Bytes =
        (0..128).flat_map(|_| ((draw.normal() * 0.09) as f32).to_le_bytes()).collect();
    pair(format!("emb:{}:{n}", draw.word()), value)
}

/// A sensor's readings: 96 floats of 64 bits with two decimals.
pub(super) fn series(draw: &mut Draw, n: u64) -> Pair {
    let mut at = draw.share() * 30.0;
    let value: Bytes = (0..96)
        .flat_map(|_| {
            at += draw.normal() * 0.2;
            ((at * 100.0).round() / 100.0).to_le_bytes()
        })
        .collect();
    pair(format!("sensor:{}-{}:{n}", draw.word(), draw.word()), value)
}

/// Bitmaps of who was there on a day, one in twenty or so.
pub(super) fn bitmaps(draw: &mut Draw, n: u64) -> Pair {
    let one_in = draw.between(8, 60);
    let mut value = vec![0u8; draw.between(500, 3000) as usize];
    for bit in 0..value.len() * 8 {
        value[bit / 8] |= u8::from(draw.one_in(one_in)) << (bit % 8);
    }
    pair(format!("active:{}:{n}", draw.word()), value)
}

/// Geohashes of drivers in some cities.
pub(super) fn geohashes(draw: &mut Draw, n: u64) -> Pair {
    let city = draw.pick(&["u33db", "u09tv", "gcpvj", "dr5ru", "xn76u", "sp3e3", "u2edk"]);
    let rest: String =
        (0..6).map(|_| draw.pick(b"0123456789bcdefghjkmnpqrstuvwxyz") as char).collect();
    pair(format!("loc:{}:{n}", draw.first()), format!("{city}{rest}"))
}

/// Texts in UTF-16, as Windows programs write them.
pub(super) fn utf16(draw: &mut Draw, n: u64) -> Pair {
    let bytes = draw.between(60, 300);
    let value: Bytes = draw.text(bytes).encode_utf16().flat_map(u16::to_le_bytes).collect();
    pair(format!("note/{}/{n}", draw.user(n)), value)
}

/// Chat messages in Russian and Greek.
pub(super) fn not_latin(draw: &mut Draw, n: u64) -> Pair {
    const WORDS: &[&str] = &[
        "привет",
        "как",
        "дела",
        "сегодня",
        "завтра",
        "работа",
        "дом",
        "время",
        "человек",
        "вопрос",
        "ответ",
        "хорошо",
        "очень",
        "можно",
        "нужно",
        "потом",
        "спасибо",
        "пожалуйста",
        "встреча",
        "город",
        "и",
        "в",
        "на",
        "не",
        "что",
        "это",
        "с",
        "по",
        "но",
        "мы",
        "вы",
        "они",
        "когда",
        "где",
        "почему",
        "καλημέρα",
        "σήμερα",
        "αύριο",
        "δουλειά",
        "σπίτι",
        "ώρα",
        "και",
        "το",
        "να",
        "είναι",
        "με",
        "για",
        "που",
        "ευχαριστώ",
    ];
    let greek = draw.one_in(4);
    let from = if greek { &WORDS[35..] } else { &WORDS[..35] };
    let words: Vec<&str> =
        (0..draw.between(4, 30)).map(|_| from[draw.skewed(from.len() as u64) as usize]).collect();
    pair(format!("msg:{}:{n}", draw.first()), words.join(" "))
}

/// Counters of pages, by slug.
pub(super) fn counters(draw: &mut Draw, n: u64) -> Pair {
    let number = draw.skewed(10_000_000);
    pair(format!("views:{}-{n}", draw.words(3, "-")), number.to_string())
}

/// Flags of users.
pub(super) fn flags(draw: &mut Draw, n: u64) -> Pair {
    let value = draw.pick(&["true", "false", "false", "enabled", "disabled", "on", "off"]);
    pair(
        format!("flag:{}:{}", draw.user(n), draw.pick(&["newsletter", "beta", "dark-mode"])),
        value,
    )
}

/// When somebody was last seen.
pub(super) fn dates(draw: &mut Draw, n: u64) -> Pair {
    pair(format!("seen:{}", draw.user(n)), draw.date())
}

/// Long addresses behind short codes.
pub(super) fn urls(draw: &mut Draw, n: u64) -> Pair {
    let _ = n;
    let host = draw.pick(&[
        "www.example.com",
        "shop.example.org",
        "news.example.net",
        "docs.example.io",
        "blog.example.dev",
    ]);
    let url = format!(
        "https://{host}/{}/{}/{}?utm_source={}&utm_campaign={}",
        draw.word(),
        draw.below(2026),
        draw.words(4, "-"),
        draw.pick(&["mail", "twitter", "google"]),
        draw.word()
    );
    pair(format!("short:{}", draw.letters(7)), url)
}

/// Access tokens, of hexadecimal digits or of letters.
pub(super) fn tokens(draw: &mut Draw, n: u64) -> Pair {
    let token = if draw.one_in(2) { draw.hex(40) } else { format!("ghp_{}", draw.letters(36)) };
    pair(format!("token:{}", draw.user(n)), token)
}

/// Small documents.
pub(super) fn short_json(draw: &mut Draw, n: u64) -> Pair {
    let value = format!(
        r#"{{"x":{},"y":{},"dir":"{}"}}"#,
        draw.below(4096),
        draw.below(4096),
        draw.pick(&["n", "e", "s", "w"])
    );
    pair(format!("pos:{n}"), value)
}

/// UUIDs of accounts, by e-mail address.
pub(super) fn uuids(draw: &mut Draw, n: u64) -> Pair {
    pair(format!("account:{}", draw.email(n)), draw.uuid())
}

/// Who holds a lock.
pub(super) fn locks(draw: &mut Draw, n: u64) -> Pair {
    let value = format!(
        "{}-worker-{}:pid-{}:thread-{}",
        draw.pick(&["eu-west", "us-east", "ap-south"]),
        draw.below(64),
        draw.between(100, 32_000),
        draw.below(16)
    );
    pair(format!("lock:{}/{}/{n}", draw.word(), draw.word()), value)
}

/// What Java's serialisation makes of a session attribute.
pub(super) fn java(draw: &mut Draw, n: u64) -> Pair {
    let mut out = b"\xac\xed\x00\x05sr\x00\x1fcom.example.shop.model.CartEntry\x5a\x11\x09\xc3\x77\x8e\x21\xb4\x02\x00\x05J\x00\x09timestampI\x00\x08quantityD\x00\x05priceL\x00\x05titlet\x00\x12Ljava/lang/String;L\x00\x05ownerq\x00~\x00\x01xp".to_vec();
    out.extend_from_slice(&draw.moment().to_be_bytes());
    out.extend_from_slice(&(draw.between(1, 9) as u32).to_be_bytes());
    out.extend_from_slice(&(draw.below(30_000) as f64 / 100.0).to_be_bytes());
    for text in [draw.words(3, " "), draw.user(n)] {
        out.push(b't');
        out.extend_from_slice(&(text.len() as u16).to_be_bytes());
        out.extend_from_slice(text.as_bytes());
    }
    pair(format!("spring:session:sessions:{}", draw.uuid()), out)
}

/// JSON that the application has compressed already.
pub(super) fn deflated(draw: &mut Draw, n: u64) -> Pair {
    let (_, value) = profiles(draw, n);
    let mut out = vec![0u8; zstd_safe::compress_bound(value.len())];
    let len = zstd_safe::compress(&mut out[..], &value, 3).expect("room for it");
    out.truncate(len);
    pair(format!("z:{}", draw.user(n)), out)
}

/// Encrypted bytes.
pub(super) fn encrypted(draw: &mut Draw, n: u64) -> Pair {
    let len = draw.between(100, 900) as usize;
    pair(format!("vault/{}/{n}", draw.word()), draw.bytes(len))
}

/// The last prices of shares, by ticker.
pub(super) fn tickers(draw: &mut Draw, n: u64) -> Pair {
    let name: String =
        (0..4).map(|at| char::from(b'A' + (n * 17_389 / 26u64.pow(at) % 26) as u8)).collect();
    let price = draw.between(100, 90_000) as f64 / 100.0;
    let value = format!(
        r#"{{"symbol":"{name}","last":{price:.2},"open":{:.2},"high":{:.2},"low":{:.2},"volume":{},"exchange":"{}","ts":{}}}"#,
        price * 0.99,
        price * 1.02,
        price * 0.97,
        draw.skewed(90_000_000),
        draw.pick(&["NYSE", "NASDAQ", "XETRA"]),
        draw.moment(),
    );
    pair(format!("quote:{name}"), value)
}

/// Addresses of hosts.
pub(super) fn hosts(draw: &mut Draw, n: u64) -> Pair {
    pair(
        format!(
            "dns:{}.{}{n}.{}",
            draw.pick(&["www", "mail", "api", "cdn"]),
            draw.word(),
            draw.pick(&["com", "net", "org", "de"])
        ),
        draw.ip(),
    )
}

/// A key whose values change over time: another kind every 4,000.
pub(super) fn changing(draw: &mut Draw, n: u64) -> Pair {
    let (_, value) = [profiles, csv, php, skus, logs][(n / 4000 % 5) as usize](draw, n);
    pair(format!("item:{n}"), value)
}

/// Results of Celery's tasks.
pub(super) fn results(draw: &mut Draw, n: u64) -> Pair {
    let id = draw.uuid();
    let value = format!(
        r#"{{"status": "SUCCESS", "result": {{"rows": {}, "report": "{}.pdf"}}, "traceback": null, "children": [], "date_done": "{}", "task_id": "{id}"}}"#,
        draw.skewed(40_000),
        draw.words(2, "-"),
        draw.date(),
    );
    let _ = n;
    pair(format!("celery-task-meta-{id}"), value)
}

/// Hashes of passwords.
pub(super) fn passwords(draw: &mut Draw, n: u64) -> Pair {
    let value = format!(
        "pbkdf2_sha256$600000${}${}",
        draw.letters(22),
        BASE64_STANDARD.encode(draw.bytes(32))
    );
    pair(format!("pw:{}", draw.user(n)), value)
}

/// Small pictures as data URIs.
pub(super) fn pictures(draw: &mut Draw, n: u64) -> Pair {
    let len = draw.between(300, 2000) as usize;
    let value = format!(
        "data:image/jpeg;base64,/9j/4AAQSkZJRgABAQAAAQABAAD{}",
        BASE64_STANDARD.encode(draw.bytes(len))
    );
    pair(format!("avatar:{}", draw.user(n)), value)
}

/// 742 values of 1 KB: a store that is small.
pub(super) fn few(draw: &mut Draw, n: u64) -> Pair {
    let value = format!(
        r#"{{"id":{n},"slug":"{}","body":"{}","author":"{}","published":"{}"}}"#,
        draw.words(3, "-"),
        draw.text(820),
        draw.full_name(),
        draw.date()
    );
    pair(format!("page:{}", draw.words(3, "-")), value)
}

/// Telephone numbers.
pub(super) fn phones(draw: &mut Draw, n: u64) -> Pair {
    pair(
        format!("phone:{}", draw.user(n)),
        format!(
            "+{} {} {}",
            draw.pick(&["1", "44", "49", "33", "39"]),
            draw.between(150, 999),
            draw.digits(7)
        ),
    )
}

/// HyperLogLogs in their dense form.
pub(super) fn dense(draw: &mut Draw, n: u64) -> Pair {
    let seen = draw.between(20_000, 2_000_000);
    let mut value = b"HYLL\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80".to_vec();
    value.resize(16 + 12_288, 0);
    let mean = (seen as f64 / 16_384.0).max(0.05);
    for register in 0..16_384usize {
        let rank =
            (mean / -(1.0 - draw.share()).ln().min(-1e-9)).log2().ceil().clamp(0.0, 50.0) as u32;
        let (byte, shift) = (16 + register * 6 / 8, register * 6 % 8);
        let bits = rank << shift;
        value[byte] |= bits as u8;
        if shift > 2 {
            value[byte + 1] |= (bits >> 8) as u8;
        }
    }
    pair(format!("uniques:{}:{n}", draw.word()), value)
}

/// Messages of a chat.
pub(super) fn chats(draw: &mut Draw, n: u64) -> Pair {
    let bytes = draw.between(20, 160);
    pair(format!("chat:{}:{n}", draw.word()), draw.text(bytes))
}

/// Preferences: a few words, by user and name.
pub(super) fn preferences(draw: &mut Draw, n: u64) -> Pair {
    let value = format!(
        "lang={};tz={}/{};units={};currency={}",
        draw.pick(&["en", "de", "fr", "es", "pt-BR"]),
        draw.pick(&["Europe", "America", "Asia"]),
        draw.pick(CITIES).0,
        draw.pick(&["metric", "imperial"]),
        draw.pick(&["EUR", "USD", "GBP", "JPY"])
    );
    pair(format!("prefs:{}", draw.user(n)), value)
}
