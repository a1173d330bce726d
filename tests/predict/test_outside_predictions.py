"""`electra evaluate --predictions`: files made elsewhere get the figures of the official scripts."""

import json
import sys
from random import Random

import pytest
from scipy import stats
from sklearn import metrics as sk

from electra import __main__ as cli
from electra.common.errors import ConfigError, DataError
from electra.results.outside import outside_scores, tag_scores
from tests.small_tasks import SHARED, write_squad, write_tsv

from . import official_scripts

WORDS = ["the", "red", "cat", "a", "dog", "U.S.", "—", "Ärzte", "1,000"]


def write_json(path, value):
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def draw_squad(random, tmp_path, num_questions=40, answered=0.6):
    """Draw a gold file with unusual answers, predictions, and no-answer scores with many ties."""
    items, guesses, odds = [], {}, {}
    for number in range(num_questions):
        texts = [
            " ".join(random.choices(WORDS, k=random.randint(1, 3))) for _ in range(random.randint(1, 3))
        ]  # answers that occur in no context, too: the scripts do not look
        answers = [{"text": text, "answer_start": 0} for text in texts] if random.random() < answered else []
        id = f"q{number}"
        items.append({"id": id, "question": "?", "answers": answers, "is_impossible": not answers})
        guesses[id] = random.choice([*texts, "", "the", " ".join(random.choices(WORDS, k=2))])
        odds[id] = random.randint(-2, 2) / 2
    path = tmp_path / "dev.json"
    write_squad(path, items, "nothing")
    shuffled = random.sample(list(odds), len(odds))
    return path, json.loads(path.read_text())["data"], guesses, {id: odds[id] for id in shuffled}


@pytest.mark.parametrize("seed", range(20))
def test_squad_1_figures_are_those_of_the_official_script(tmp_path, seed):
    random = Random(seed)
    gold, data, guesses, _ = draw_squad(random, tmp_path, answered=1)
    given = {id: text for id, text in guesses.items() if random.random() < 0.9}
    found = outside_scores("SQuAD1.1", write_json(tmp_path / "p.json", {**given, "unknown": "cat"}), gold)
    assert found == pytest.approx(official_scripts.squad_v1(data, given), abs=1e-10)


@pytest.mark.parametrize("seed", range(20))
def test_squad_2_figures_are_those_of_the_official_script(tmp_path, seed):
    gold, data, guesses, odds = draw_squad(Random(seed), tmp_path, answered=[0, 0.5, 1][seed % 3])
    predictions = write_json(tmp_path / "p.json", guesses)
    expected = official_scripts.squad_v2(data, guesses)
    found = outside_scores("SQuAD2.0", predictions, gold)
    assert found == pytest.approx(expected, abs=1e-10) and list(found) == list(expected)
    na_prob_file = write_json(tmp_path / "na.json", {**odds, "unknown": -9.0})
    found = outside_scores("SQuAD2.0", predictions, gold, na_prob_file, 0.5)
    expected = official_scripts.squad_v2(data, guesses, odds, 0.5)
    assert found == pytest.approx(expected, abs=1e-10) and found.keys() == expected.keys()


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/data is not there")
def test_real_questions_get_the_official_figures(tmp_path):
    gold = SHARED / "squad/dev-v1.1.json"
    data, random = json.loads(gold.read_text("utf-8"))["data"], Random(0)
    guesses = {}
    for paragraph in [paragraph for article in data for paragraph in article["paragraphs"]]:
        words = paragraph["context"].split()
        for item in paragraph["qas"]:
            begin = random.randrange(len(words))
            guesses[item["id"]] = random.choice([item["answers"][0]["text"], " ".join(words[begin : begin + 3])])
    found = outside_scores("SQuAD1.1", write_json(tmp_path / "p.json", guesses), gold)
    assert found == pytest.approx(official_scripts.squad_v1(data, guesses), abs=1e-10)
    assert found["exact_match"] > 40


def test_mrqa_answers_count_wherever_they_stand(tmp_path):
    gold = tmp_path / "NewsQA.jsonl"
    item = {"qid": "q", "question": "?", "answers": ["cat", "CNN"]}
    item["detected_answers"] = [{"text": "cat", "char_spans": [[4, 6]]}]
    lines = [{"header": {}}, {"context": "the cat", "qas": [item]}]
    gold.write_text("".join(json.dumps(line) + "\n" for line in lines))
    predictions = write_json(tmp_path / "p.json", {"q": "CNN!"})
    assert outside_scores("NewsQA", predictions, gold) == {"exact_match": 100, "f1": 100}


def draw_tags(random, num_sentences=12):
    """Right and predicted tags of sentences, in IOB1 or IOB2, the predictions with every kind of fault."""
    tags = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    golds = [random.choices(tags, k=random.randint(1, 9)) for _ in range(num_sentences)]
    return golds, [[tag if random.random() < 0.7 else random.choice(tags) for tag in gold] for gold in golds]


def assert_same_figures(found, expected):
    types = expected["types"]
    assert {**found, "types": None} == pytest.approx({**expected, "types": None}, abs=1e-10)
    assert found["types"] == {type_: pytest.approx(figures, abs=1e-10) for type_, figures in types.items()}


@pytest.mark.parametrize("seed", range(40))
def test_column_figures_are_those_of_conlleval(tmp_path, seed):
    golds, guesses = draw_tags(Random(seed))
    lines = []
    for sentence in zip(golds, guesses, strict=True):
        lines += [f"w{i} x {tag} {guess}" for i, (tag, guess) in enumerate(zip(*sentence, strict=True))] + [""]
    expected = official_scripts.conlleval(lines)
    both = tmp_path / "both.txt"
    both.write_text("\n".join(lines))
    assert_same_figures(outside_scores("conll", both, None), expected)
    gold, guess = tmp_path / "gold.txt", tmp_path / "guess.txt"
    gold.write_text("\n".join(" ".join(line.split()[:3]) for line in lines))
    guess.write_text("\n".join("\t".join(line.split()[::3]) for line in lines))
    assert_same_figures(outside_scores("CoNLL-2003", guess, gold), expected)
    guess.write_text("".join(line.split()[3] + "\n" for line in lines if line))  # tags alone
    assert_same_figures(outside_scores("conll", guess, gold), expected)


# right and predicted tags; phrases, found and correct as conlleval.pl of 2004-01-26 printed them
PRINTED = [
    ("B-X I-X O B-X", "B-X E-X O S-X", 2, 2, 2),
    ("B-X B-X", "S-X S-X", 2, 1, 0),  # no rule for S: two of a type are one
    ("B-X I-X B-X I-X", "B-X E-X B-X E-X", 2, 1, 0),  # nor for B after E
    ("B-X E-X B-X E-X", "B-X E-X B-X E-X", 1, 1, 1),
    ("I-X E-X I-X E-X", "B-X I-X B-X I-X", 2, 2, 2),  # IOE2
    ("I-X I-X E-X I-X", "B-X I-X I-X B-X", 2, 2, 2),  # IOE1: E where another of the type follows
    ("E-X E-X O", "B-X B-X O", 2, 2, 2),
    ("I-X B-X O", "B-X B-X O", 2, 2, 2),  # IOB1
    ("I-X I-Y", "B-X B-Y", 2, 2, 2),
    ("O I-X I-X", "O B-X I-X", 1, 1, 1),
    ("[-X ]-X O", "B-X B-X O", 2, 2, 2),  # of length 1
    ("B-X [-X O", "B-X [-X O", 2, 2, 1),  # the first is begun and never ended
    ("B I O B", "B I B B", 2, 3, 2),  # no types
    ("B-X I-X", "B-X I-Y", 1, 2, 0),
    ("B-A-B I-A-B", "B-A-B I-A-B", 1, 1, 1),
]


@pytest.mark.parametrize(("gold", "guess", "phrases", "found", "correct"), PRINTED)
def test_chunks_begin_and_end_where_conlleval_has_them(gold, guess, phrases, found, correct):
    scores = tag_scores([gold.split()], [guess.split()])
    assert (scores["phrases"], scores["found"], scores["correct"]) == (phrases, found, correct)


@pytest.mark.parametrize("seed", range(40))
def test_figures_of_any_tags_are_those_of_conlleval(seed):
    random = Random(seed)
    tags = ["O", *(f"{prefix}-{type_}" for prefix in "BIES[]" for type_ in "XY")]
    golds = [random.choices(tags, k=random.randint(1, 9)) for _ in range(12)]
    guesses = [[tag if random.random() < 0.7 else random.choice(tags) for tag in gold] for gold in golds]
    pairs = zip(golds, guesses, strict=True)
    lines = [line for pair in pairs for line in [*map(" ".join, zip("wwwwwwwww", *pair, strict=False)), ""]]
    assert_same_figures(tag_scores(golds, guesses), official_scripts.conlleval(lines))


def test_what_conlleval_joins_in_bioes_is_said(capsys):
    tag_scores([["B-X", "B-X"]], [["S-X", "S-X"]])
    said = capsys.readouterr().err
    assert "the predictions have 2 entities in the scheme BIOES, of which conlleval.pl counts 1" in said
    assert "the right tags" not in said
    tag_scores([["B-X", "I-X", "O", "B-Y"]], [["B-X", "E-X", "O", "S-Y"]])
    assert capsys.readouterr().err == ""


def test_a_line_without_a_tag_among_entities_is_named(capsys):
    assert tag_scores([["B-X", "1"]], [["B-X", "o"]]).keys() == {"tokens", "accuracy"}
    assert "entities are not counted, since '1', 'o' is neither O" in capsys.readouterr().err
    tag_scores([["NN", "VB"]], [["NN", "NN"]])
    assert capsys.readouterr().err == ""


def test_a_line_of_conllevals_boundary_parts_sentences(tmp_path):
    both = tmp_path / "both.txt"
    both.write_text("a B-X B-X\n-X- O O\nb I-X I-X\n")
    found = outside_scores("conll", both, None)
    assert (found["tokens"], found["phrases"], found["correct"]) == (2, 2, 2)


def test_lines_that_begin_a_document_count_as_words_as_in_conlleval_unless_the_predictions_lack_them(tmp_path):
    gold, guess = tmp_path / "eng.testb", tmp_path / "guess.txt"
    gold.write_text("-DOCSTART- -X- -X- O\n\nMary NNP I-NP B-PER\nsat VBD I-VP O\n")
    guess.write_text("-DOCSTART- O\n\nMary B-PER\nsat O\n")
    assert outside_scores("CoNLL-2003", guess, gold)["tokens"] == 3
    guess.write_text("Mary B-PER\nsat O\n")
    assert outside_scores("CoNLL-2003", guess, gold)["tokens"] == 2


def test_tags_that_mark_no_entities_have_an_accuracy_only():
    assert tag_scores([["D", "N"], ["N"]], [["D", "D"], ["N"]]) == {"tokens": 3, "accuracy": 100 * 2 / 3}


def test_latin_1_files_of_conll_2002_are_scored(tmp_path):
    gold = tmp_path / "esp.testb"
    gold.write_bytes("España B-LOC\n".encode("latin-1"))
    guess = tmp_path / "guess.txt"
    guess.write_text("España B-LOC\n", encoding="utf-8")
    assert outside_scores("CoNLL-2002-esp", guess, gold)["f1"] == 100


HEADERS = {
    "RTE": ["index", "sentence1", "sentence2", "label"],
    "MRPC": ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"],
    "STS-B": [*"abcdef", "g", "sentence1", "sentence2", "score"],
}


def write_glue(tmp_path, task, labels, guesses):
    """A gold file and the leaderboard's layout of predictions, in another order."""
    gold, predictions = tmp_path / "dev.tsv", tmp_path / f"{task}.tsv"
    rows = {
        "CoLA": [["x", label, "", "the cat"] for label in labels],
        "RTE": [[str(n), "the cat", "a cat", label] for n, label in enumerate(labels)],
        "MRPC": [[label, "1", "2", "the cat", "a cat"] for label in labels],
        "STS-B": [[*"0123456", "the cat", "a cat", label] for label in labels],
    }[task]
    write_tsv(gold, rows, HEADERS.get(task))
    numbered = [[str(n), guess] for n, guess in enumerate(guesses)]
    write_tsv(predictions, numbered[::-1], ["index", "prediction"])
    return predictions, gold


@pytest.mark.parametrize("seed", range(5))
def test_glue_figures_are_those_of_scikit_learn_and_scipy(tmp_path, seed):
    random = Random(seed)
    labels, guesses = (random.choices("01", k=50) for _ in range(2))
    assert outside_scores("CoLA", *write_glue(tmp_path, "CoLA", labels, guesses)) == pytest.approx(
        {
            "matthews": 100 * sk.matthews_corrcoef(labels, guesses),
            "accuracy": 100 * sk.accuracy_score(labels, guesses),
        },
        abs=1e-10,
    )
    assert outside_scores("MRPC", *write_glue(tmp_path, "MRPC", labels, guesses)) == pytest.approx(
        {
            "accuracy": 100 * sk.accuracy_score(labels, guesses),
            "f1": 100 * sk.f1_score(labels, guesses, pos_label="1"),
        },
        abs=1e-10,
    )
    words = [["not_entailment", "entailment"][int(label)] for label in labels]
    found = outside_scores("RTE", *write_glue(tmp_path, "RTE", words, words[::-1]))
    assert found == pytest.approx({"accuracy": 100 * sk.accuracy_score(words, words[::-1])}, abs=1e-10)
    numbers, scores = ([random.randint(0, 10) / 2 for _ in range(30)] for _ in range(2))
    scores[0] = -7.5  # outside the scale: the correlation is defined all the same
    found = outside_scores("STS-B", *write_glue(tmp_path, "STS-B", list(map(str, numbers)), list(map(str, scores))))
    expected = {"spearman": stats.spearmanr(numbers, scores)[0], "pearson": stats.pearsonr(numbers, scores)[0]}
    assert found == pytest.approx({name: 100 * value for name, value in expected.items()}, abs=1e-10)


def test_swag_is_scored_by_accuracy(tmp_path):
    header = ["sent1", "sent2", *(f"ending{n}" for n in range(4)), "label"]
    gold = tmp_path / "val.csv"
    gold.write_text("\n".join([",".join(header), "a,b,c,d,e,f,2", "a,b,c,d,e,f,0"]) + "\n")
    predictions = tmp_path / "p.tsv"
    write_tsv(predictions, [["0", "2"], ["1", "1"]])
    assert outside_scores("SWAG", predictions, gold) == {"accuracy": 50}


def write_boolq(tmp_path, lines):
    gold, predictions = tmp_path / "val.jsonl", tmp_path / "BoolQ.jsonl"
    labels = [True, False, True, True]
    rows = [{"question": "q", "passage": "p", "idx": n, "label": label} for n, label in enumerate(labels)]
    gold.write_text("".join(json.dumps(row) + "\n" for row in rows))
    predictions.write_bytes(lines.encode())
    return predictions, gold


def test_superglues_json_lines_are_scored(tmp_path):
    answers = {3: "true", 0: True, 1: "true", 2: "false"}  # labels as strings and as they stand in the gold file
    lines = "".join(json.dumps({"idx": idx, "label": label}) + "\n" for idx, label in answers.items())
    for written in (lines, "\ufeff" + lines.replace("\n", "\r\n"), lines + "\n"):
        assert outside_scores("BoolQ", *write_boolq(tmp_path, written)) == {"accuracy": 50}
    assert outside_scores("BoolQ", *write_boolq(tmp_path, "0\ttrue\n1\tfalse\n2\ttrue\n3\ttrue\n")) == {"accuracy": 100}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('{"idx": 0, "label": "yes"}', "'yes' is not one of false, true"),
        ('{"idx": 0, "label": null}', "row 0 has no label"),
        ('{"idx": 0}', "row 0 has no label"),
        ('{"label": "true"}', 'expected {"idx": ..., "label": ...}'),
        ('{"idx": 0, "label": "true"}\n[1]', 'expected {"idx": ..., "label": ...}'),
        ('{"idx": 0, "label": "true"}\n{"idx": 0, "label": "true"}', "index 0 stands twice"),
        ('{"idx": 0, "label": "true"}', "3 without a prediction (1, 2, 3)"),
        ('{"idx": 0, "label": "true"', "not valid JSON"),
    ],
)
def test_json_lines_that_are_no_predictions_are_refused(tmp_path, lines, said):
    with pytest.raises(DataError) as caught:
        outside_scores("BoolQ", *write_boolq(tmp_path, lines))
    assert said in str(caught.value) and "BoolQ.jsonl" in str(caught.value)


QUESTION = {"id": "q", "question": "?", "answers": [{"text": "cat", "answer_start": 0}]}


@pytest.mark.parametrize(
    ("task", "predictions", "odds", "said"),
    [
        ("SQuAD2.0", "{}", None, "1 of 1 questions have no prediction, the first is q"),
        ("SQuAD2.0", '{"q": "x"}', "{}", "1 of 1 questions have no no-answer score"),
        ("SQuAD2.0", '{"q": "x"}', '{"q": NaN}', "no-answer score of question q is no finite number"),
        ("SQuAD2.0", '{"q": "x"}', '{"q": true}', "no-answer score of question q is no finite number"),
        ("SQuAD2.0", '{"q": "x"}', '{"q": Infinity}', "no-answer score of question q is no finite number"),
        ("MRPC", "-1\t1\n0\t1\n", None, "1 unknown (-1)"),
        ("MRPC", '[{"idx": 0, "label": 1}]', None, "or JSON lines"),
        ("SQuAD1.1", '{"q": 1}', None, "the answer to question q is no text"),
        ("SQuAD1.1", "[]", None, "expected one JSON object"),
        ("SQuAD1.1", "[" * 10**5, None, "not valid JSON"),
        ("SQuAD1.1", "{", None, "not valid JSON"),
        ("MRPC", "0\t1\t2\n", None, "expected index and prediction with a tab between"),
        ("MRPC", "0\t1\n0\t1\n", None, "index 0 stands twice"),
        ("MRPC", "0\tyes\n", None, "'yes' is not one of 0, 1"),
        ("MRPC", "1\t1\n", None, "1 without a prediction (0), 1 unknown (1)"),
        ("STS-B", "0\tinf\n", None, "'inf' is no number"),
        ("conll", "a O\n", None, "1 words are predicted, the gold file has 2"),
        ("conll", "a O\nc O\n", None, "the word 'c' stands where the gold file has 'b'"),
    ],
)
def test_predictions_of_something_else_are_refused(tmp_path, task, predictions, odds, said):
    path, gold = tmp_path / "p", tmp_path / "gold"
    path.write_text(predictions)
    if task == "conll":
        gold.write_text("a O\nb O\n")
    elif task.startswith("SQuAD"):
        write_squad(gold, [QUESTION], "cat")
    else:
        _, gold = write_glue(tmp_path, task, ["1"], [])
    na_prob_file = None if odds is None else tmp_path / "na"
    if na_prob_file:
        na_prob_file.write_text(odds)
    with pytest.raises(DataError) as caught:
        outside_scores(task, path, gold, na_prob_file)
    assert said in str(caught.value) and str(tmp_path) in str(caught.value)


def test_what_cannot_be_scored_is_said(tmp_path):
    gold, predictions = tmp_path / "gold", write_json(tmp_path / "p", {"q": "cat"})
    with pytest.raises(DataError, match="gold is no file"):
        outside_scores("SQuAD1.1", predictions, gold)
    write_squad(gold, [{**QUESTION, "answers": []}], "cat")
    with pytest.raises(DataError, match="question q has no answer"):
        outside_scores("SQuAD1.1", predictions, gold)
    with pytest.raises(ConfigError, match="there is no task 'NER'"):
        outside_scores("NER", predictions, gold)
    with pytest.raises(ConfigError, match="give --gold"):
        outside_scores("MRPC", predictions, None)
    with pytest.raises(ConfigError, match="--na-prob-file is for tasks with unanswerable questions, not for SQuAD1.1"):
        outside_scores("SQuAD1.1", predictions, gold, predictions)
    with pytest.raises(ConfigError, match="--na-prob-thresh is no number"):
        outside_scores("SQuAD2.0", predictions, gold, None, float("nan"))
    gold.write_bytes(b"\xff\xff")
    with pytest.raises(DataError, match="not UTF-8"):
        outside_scores("SQuAD1.1", predictions, gold)


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["electra", "evaluate", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return caught.value.code


def test_the_command_prints_the_figures_as_json(tmp_path, monkeypatch, capsys):
    gold, predictions = tmp_path / "gold.json", write_json(tmp_path / "p.json", {"q": "the cat"})
    write_squad(gold, [QUESTION, {**QUESTION, "id": "r"}], "cat")
    assert run(monkeypatch, "--task", "SQuAD1.1", "--predictions", predictions, "--gold", gold) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"exact_match": 50, "f1": 50}
    assert "1 questions have no prediction and count as 0; the first is r" in printed.err
    assert run(monkeypatch, "--predictions", predictions, "--gold", gold) == 2
    assert "electra evaluate --task SQuAD2.0" in capsys.readouterr().err
