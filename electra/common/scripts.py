"""Scripts in which words are not separated by spaces."""

import re

# Scripts without spaces between words: Thai, Lao, Tibetan, Myanmar, Khmer, kana, bopomofo, Han, Yi, with their
# punctuation and wide forms. Hangul has spaces.
UNSPACED = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u2e80-\u312f\u31a0-\u4dbf\u4e00-\ua4cf\uaa60-\uaa7f\uf900-\ufaff"
    "\uff00-\uff9f\uffe0-\uffef\U0001b000-\U0001b16f\U00020000-\U0003ffff]+"
)
