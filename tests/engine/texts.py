"""Mixed texts, as nasty as those that models are given."""

from __future__ import annotations

from random import Random

WORDS = (
    "the of and to in is that for it was as with on be at by this had not are but from or have "
    "an they which one you were all her she there would their we him been has when who will no "
    "more if out so up said what its about than into them can only other time new some could "
    "these two may first then do any like my now over such our man me even most made after "
    "Don't I'll we've it's O'Neill STOP Reading MiXeD naïve café Straße"
)
CODE = (
    "def f(x):\n    return x ** 2  # squared\n",
    "for (int i = 0; i < n; ++i) { sum += a[i]; }\r\n",
    "SELECT * FROM t WHERE id IN (1, 2);",
    '\tif not ok:\n\t\traise ValueError(f"{x!r}")\n\n\n',
    "<div class='a'>&nbsp;</div>",
    "https://example.org/a?b=c&d=%20#e",
    '{"key": [1, 2.5e-10, null]}',
)
SCRIPTS = (
    "日本語のテキスト",
    "中国人民",
    "русский текст",
    "हिन्दी",
    "עברית",
    "العربية نص",
    "한국어",
    "ไทย",
    "Ελληνικά",
    "naïve e\u0301",
    "ǅ ß \u0131 İ",
    "½ ² Ⅷ ٣ ६",
)
SIGNS = (
    "🧮",
    "👩‍👩‍👧‍👦",
    "🇫🇷🇯🇵",
    "👍🏽",
    "…",
    "“”",
    "—",
    "\u00a0",
    "\u200b",
    "\ufeffx",
    "\x00",
    "\u3000",
    "\u2028",
    "€",
    "$^~|`",
    "----",
    "====",
    "...",
    "!!!?",
    "'s",
    "\u2019s",
)
SPACES = (" ", " ", " ", "  ", "   ", "        ", "\n", "\n\n", "\r\n", "\t", " \n ", "\n    ")
MARKUP = (
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<s>",
    "</s>",
    "<unk>",
    "[INST]",
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    "<0x0A>",
    "<|im_",
)


def mixed_texts(count: int, seed: int) -> list[str]:
    """Texts of one to a dozen pieces of every sort, with and without spaces between them."""
    random = Random(seed)
    words = WORDS.split()
    sorts = (words, words, words, CODE, SCRIPTS, SIGNS, SPACES, MARKUP)
    texts = []
    for _ in range(count):
        pieces = []
        for _ in range(random.randint(1, 12)):
            sort = random.randrange(len(sorts) + 2)
            if sort == len(sorts):
                pieces.append(str(random.randrange(10 ** random.randint(1, 12))))
            elif sort > len(sorts):
                pieces.append(
                    chr(random.choice((0x20, 0x300, 0x4E00, 0x1F600)) + random.randrange(96))
                )
            else:
                pieces.append(random.choice(sorts[sort]))
            pieces.append(random.choice(("", "", *SPACES)))
        texts.append("".join(pieces))
    return texts
