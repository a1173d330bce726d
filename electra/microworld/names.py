"""Names of people and towns: real and made by joining stems with endings."""

FEMALE = (
    "Anna Maria Clara Emma Julia Laura Sarah Helen Alice Nora Lucy Rosa Irene Martha Edith Grace Ruth Vera Olga Diana"
    " Sophie Elena Judith Agnes Flora Hilda Ingrid Louise Monica Paula Sylvia Ursula Wanda Yvonne Beatrice Cecilia"
).split()
MALE = (
    "Peter John Paul Mark Tom David James Henry Arthur Oscar Simon Victor Walter Hugo Felix Leo Max Adam Ben Carl"
    " Edgar Frank George Harold Ivan Kevin Louis Martin Noah Oliver Patrick Robert Samuel Theodore Vincent William"
).split()
_STEMS = "Bel Cal Dor El Fen Gal Hal Jor Kel Lor Mal Nar Pol Ral Sel Tam Ul Val Wil Zan Bren Corl Dar Evel".split()
FEMALE += [stem + ending for ending in ("ina", "ette", "issa") for stem in _STEMS]
MALE += [stem + ending for ending in ("ric", "mond", "bert") for stem in _STEMS]
_SURNAME_STEMS = (
    "Hill Wood Stone Black White Brown Green Bridge Cross Gold Silver Winter Summer Har Mar Thom Wil Ell".split()
)
SURNAMES = [stem + ending for ending in ("man", "son", "smith", "worth") for stem in _SURNAME_STEMS]
_TOWN_STEMS = "Ash Brook Oak Elm Stone North Wester Easter Red Clay Hart Lang Mill Spring Thorn Whit King Marsh".split()
TOWNS = [stem + ending for ending in ("ford", "field", "ton", "bury", "wick", "mouth", "dale") for stem in _TOWN_STEMS]
REGIONS = "Velmora Tarsia Ondria Kessland Morvania Pelland Sundria Galmark Ithria Borland Quelland Zembria".split()
