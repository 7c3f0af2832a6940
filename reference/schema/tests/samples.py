"""The schema of the golden graph `social`, and what the public release made of it: facts to hold this room to."""

from __future__ import annotations

SOCIAL = """\
// A small social graph with every kind of column the format has.
interface Named {
  name: String
}

node Person implements Named {
  handle: String @key
  name: String @index
  age: I32?
  email: String? @unique
  mood: enum(calm, busy, away)?
  joined: Date?
  seen: DateTime?
  score: F64?
  tags: [String]?
  face: Vector(4)?
  @range(age, 0..150)
  @check(handle, "^[a-z][a-z0-9_]*$")
}

node Company {
  name: String @key
  founded: I64?
  city: String?
  size: U32?
  public: Bool?
}

node Note {
  title: String
  body: Blob?
}

edge Knows: Person -> Person {
  since: Date?
  strength: F32?
}

edge WorksAt: Person -> Company @card(0..1) {
  role: String?
  @unique(src, role)
}

edge Wrote: Person -> Note

node Place {
  code: String @key
}
"""
SOCIAL_HASH = "sha256:b81a837fc1bee08ce0fb3c47febcbf24249cd03bb58ebcfa5a3af67f7d1bf136"

# The golden graphs start without these; schema apply added them.
BEFORE_EVOLUTION = SOCIAL.replace("  city: String?\n", "").replace("\nnode Place {\n  code: String @key\n}\n", "")
BEFORE_EVOLUTION_HASH = "sha256:b54ff03c71f54efe400fb8b080a526fd32a5bcfec623fca0e8031e96e7815979"
