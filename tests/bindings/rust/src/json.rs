//! JSON, as far as the files of cases have it.
use distag::DType;
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<Json>),
    Map(BTreeMap<String, Json>),
}

static NULL: Json = Json::Null;

impl Json {
    pub fn parse(text: &str) -> Json {
        let mut reader = Reader { text: text.as_bytes(), at: 0 };
        let found = reader.value();
        reader.space();
        assert_eq!(reader.at, text.len(), "text after the end of JSON");
        found
    }

    /// An entry of a map; null where there is none.
    pub fn get(&self, key: &str) -> &Json {
        match self {
            Json::Map(entries) => entries.get(key).unwrap_or(&NULL),
            other => panic!("{key}: no map: {other:?}"),
        }
    }
    pub fn has(&self, key: &str) -> bool {
        *self.get(key) != Json::Null
    }
    pub fn list(&self) -> &[Json] {
        match self {
            Json::List(items) => items,
            other => panic!("no list: {other:?}"),
        }
    }
    pub fn as_i64(&self) -> i64 {
        match self {
            Json::Int(number) => *number,
            other => panic!("no integer: {other:?}"),
        }
    }
    pub fn as_f64(&self) -> f64 {
        match self {
            Json::Int(number) => *number as f64,
            Json::Float(number) => *number,
            Json::Bool(flag) => f64::from(u8::from(*flag)),
            other => panic!("no number: {other:?}"),
        }
    }
    pub fn as_str(&self) -> &str {
        match self {
            Json::Text(text) => text,
            other => panic!("no text: {other:?}"),
        }
    }
    pub fn int(&self, key: &str) -> i64 {
        self.get(key).as_i64()
    }
    pub fn float(&self, key: &str) -> f64 {
        self.get(key).as_f64()
    }
    pub fn flag(&self, key: &str) -> bool {
        *self.get(key) == Json::Bool(true)
    }
    pub fn text(&self, key: &str) -> String {
        match self.get(key) {
            Json::Null => String::new(),
            other => other.as_str().to_owned(),
        }
    }
    pub fn ints(&self, key: &str) -> Vec<i64> {
        match self.get(key) {
            Json::Null => Vec::new(),
            other => other.as_ints(),
        }
    }
    pub fn as_ints(&self) -> Vec<i64> {
        self.list().iter().map(Json::as_i64).collect()
    }
    pub fn dtype(&self, key: &str) -> DType {
        match self.text(key).as_str() {
            "float64" => DType::Float64,
            "int64" => DType::Int64,
            "bool" => DType::Bool,
            _ => DType::Float32,
        }
    }

    /// The numbers of nested lists.
    pub fn flat(&self) -> Vec<f64> {
        match self {
            Json::List(items) => items.iter().flat_map(Json::flat).collect(),
            other => vec![other.as_f64()],
        }
    }
    /// The sizes of nested lists.
    pub fn shape(&self) -> Vec<i64> {
        match self {
            Json::List(items) => {
                let mut sizes = vec![items.len() as i64];
                sizes.extend(items.first().map(Json::shape).unwrap_or_default());
                sizes
            }
            _ => Vec::new(),
        }
    }
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn space(&mut self) {
        while self.at < self.text.len() && self.text[self.at].is_ascii_whitespace() {
            self.at += 1;
        }
    }
    fn peek(&mut self) -> u8 {
        self.space();
        *self.text.get(self.at).expect("JSON ends early")
    }
    fn take(&mut self, wanted: u8) -> bool {
        let is_there = self.peek() == wanted;
        self.at += usize::from(is_there);
        is_there
    }
    fn word(&mut self, word: &str, value: Json) -> Json {
        assert!(self.text[self.at..].starts_with(word.as_bytes()), "no JSON at {}", self.at);
        self.at += word.len();
        value
    }
    fn value(&mut self) -> Json {
        match self.peek() {
            b'{' => self.map(),
            b'[' => self.list(),
            b'"' => Json::Text(self.string()),
            b't' => self.word("true", Json::Bool(true)),
            b'f' => self.word("false", Json::Bool(false)),
            b'n' => self.word("null", Json::Null),
            _ => self.number(),
        }
    }
    fn map(&mut self) -> Json {
        self.at += 1;
        let mut entries = BTreeMap::new();
        while !self.take(b'}') {
            let key = (self.peek(), self.string()).1;
            assert!(self.take(b':'), "no colon");
            entries.insert(key, self.value());
            self.take(b',');
        }
        Json::Map(entries)
    }
    fn list(&mut self) -> Json {
        self.at += 1;
        let mut items = Vec::new();
        while !self.take(b']') {
            items.push(self.value());
            self.take(b',');
        }
        Json::List(items)
    }
    fn string(&mut self) -> String {
        self.at += 1;
        let mut bytes = Vec::new();
        loop {
            let byte = self.text[self.at];
            self.at += 1;
            match byte {
                b'"' => return String::from_utf8(bytes).expect("UTF-8"),
                b'\\' => self.escape(&mut bytes),
                _ => bytes.push(byte),
            }
        }
    }
    fn escape(&mut self, bytes: &mut Vec<u8>) {
        let byte = self.text[self.at];
        self.at += 1;
        match byte {
            b'n' => bytes.push(b'\n'),
            b't' => bytes.push(b'\t'),
            b'r' => bytes.push(b'\r'),
            b'b' => bytes.push(8),
            b'f' => bytes.push(12),
            b'u' => {
                let digits = std::str::from_utf8(&self.text[self.at..self.at + 4]).expect("four digits");
                let number = u32::from_str_radix(digits, 16).expect("four digits");
                self.at += 4;
                bytes.extend(char::from_u32(number).unwrap_or('\u{fffd}').to_string().bytes());
            }
            other => bytes.push(other),
        }
    }
    fn number(&mut self) -> Json {
        let begin = self.at;
        while self.at < self.text.len() && b"+-.0123456789eEinfINaN".contains(&self.text[self.at]) {
            self.at += 1;
        }
        let text = std::str::from_utf8(&self.text[begin..self.at]).expect("a number");
        match text.parse() {
            Ok(number) if text != "-0" => Json::Int(number),
            _ => Json::Float(text.replace("Infinity", "inf").parse().unwrap_or_else(|_| panic!("no number: {text}"))),
        }
    }
}
