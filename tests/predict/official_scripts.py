"""Arithmetic of the official evaluation scripts, step by step: the reference for `electra evaluate`.

evaluate-v1.1.py and evaluate-v2.0.py (Rajpurkar et al.), conlleval (Tjong Kim Sang), without their files and options.
"""

import re
import string
from collections import Counter


def normalize_answer(s):
    s = "".join(ch for ch in s.lower() if ch not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", s).split())


def _f1(gold, prediction):
    same = sum((Counter(prediction) & Counter(gold)).values())
    if same == 0:
        return 0
    precision, recall = 1.0 * same / len(prediction), 1.0 * same / len(gold)
    return (2 * precision * recall) / (precision + recall)


def squad_v1(dataset, predictions):
    f1 = exact = total = 0
    for article in dataset:
        for paragraph in article["paragraphs"]:
            for qa in paragraph["qas"]:
                total += 1
                if qa["id"] not in predictions:
                    continue
                prediction = normalize_answer(predictions[qa["id"]])
                truths = [normalize_answer(answer["text"]) for answer in qa["answers"]]
                exact += max(prediction == truth for truth in truths)
                f1 += max(_f1(truth.split(), prediction.split()) for truth in truths)
    return {"exact_match": 100.0 * exact / total, "f1": 100.0 * f1 / total}


def _f1_v2(gold, prediction):
    if len(gold) == 0 or len(prediction) == 0:
        return int(gold == prediction)
    return _f1(gold, prediction)


def squad_v2(dataset, preds, na_probs=None, thresh=1.0):
    has_ans, exact_raw, f1_raw = {}, {}, {}
    for article in dataset:
        for paragraph in article["paragraphs"]:
            for qa in paragraph["qas"]:
                has_ans[qa["id"]] = bool(qa["answers"])
                golds = [a["text"] for a in qa["answers"] if normalize_answer(a["text"])] or [""]
                guess = normalize_answer(preds[qa["id"]])
                exact_raw[qa["id"]] = max(int(normalize_answer(gold) == guess) for gold in golds)
                f1_raw[qa["id"]] = max(_f1_v2(normalize_answer(gold).split(), guess.split()) for gold in golds)
    probs = na_probs if na_probs is not None else dict.fromkeys(preds, 0.0)

    def thresholded(scores):
        return {qid: float(not has_ans[qid]) if probs[qid] > thresh else s for qid, s in scores.items()}

    exact, f1 = thresholded(exact_raw), thresholded(f1_raw)
    result = {}
    for prefix, qids in [
        ("", list(exact)),
        ("HasAns_", [k for k, v in has_ans.items() if v]),
        ("NoAns_", [k for k, v in has_ans.items() if not v]),
    ]:
        if qids:
            result[f"{prefix}exact"] = 100.0 * sum(exact[k] for k in qids) / len(qids)
            result[f"{prefix}f1"] = 100.0 * sum(f1[k] for k in qids) / len(qids)
            result[f"{prefix}total"] = len(qids)
    if na_probs is not None:
        for name, scores in (("exact", exact_raw), ("f1", f1_raw)):
            current = best = sum(1 for k in has_ans if not has_ans[k])
            best_thresh = 0.0
            for qid in sorted(na_probs, key=lambda k: na_probs[k]):
                if qid not in scores:
                    continue
                current += scores[qid] if has_ans[qid] else (-1 if preds[qid] else 0)
                if current > best:
                    best, best_thresh = current, na_probs[qid]
            result[f"best_{name}"] = 100.0 * best / len(scores)
            result[f"best_{name}_thresh"] = best_thresh
    return result


def _end_of_chunk(prev, tag, prev_type, type_):
    pairs = [("B", "B"), ("B", "O"), ("I", "B"), ("I", "O"), ("E", "E"), ("E", "I"), ("E", "O")]
    return (prev, tag) in pairs or (prev not in ("O", ".") and prev_type != type_) or prev in ("[", "]")


def _start_of_chunk(prev, tag, prev_type, type_):
    pairs = [("B", "B"), ("I", "B"), ("O", "B"), ("O", "I"), ("E", "E"), ("E", "I"), ("O", "E")]
    return (prev, tag) in pairs or (tag not in ("O", ".") and prev_type != type_) or tag in ("[", "]")


def conlleval(lines):
    """The figures over lines ``word ... gold predicted`` with blank lines between sentences."""
    correct_chunk, found_correct, found_guessed = Counter(), Counter(), Counter()
    tokens = correct_tags = 0
    last_correct = last_guessed = "O"
    last_correct_type = last_guessed_type = ""
    in_correct = False
    for line in [*lines, ""]:
        features = line.split() or ["", "O", "O"]
        guessed, _, guessed_type = features[-1].partition("-")
        correct, _, correct_type = features[-2].partition("-")
        end_correct = _end_of_chunk(last_correct, correct, last_correct_type, correct_type)
        end_guessed = _end_of_chunk(last_guessed, guessed, last_guessed_type, guessed_type)
        start_correct = _start_of_chunk(last_correct, correct, last_correct_type, correct_type)
        start_guessed = _start_of_chunk(last_guessed, guessed, last_guessed_type, guessed_type)
        if in_correct:
            if end_correct and end_guessed and last_guessed_type == last_correct_type:
                in_correct = False
                correct_chunk[last_correct_type] += 1
            elif end_correct != end_guessed or guessed_type != correct_type:
                in_correct = False
        if start_correct and start_guessed and guessed_type == correct_type:
            in_correct = True
        found_correct[correct_type] += start_correct
        found_guessed[guessed_type] += start_guessed
        if line.split():
            tokens += 1
            correct_tags += (correct, correct_type) == (guessed, guessed_type)
        last_correct, last_correct_type = correct, correct_type
        last_guessed, last_guessed_type = guessed, guessed_type

    def scores(phrases, found, correct):
        precision = 100.0 * correct / found if found else 0.0
        recall = 100.0 * correct / phrases if phrases else 0.0
        f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
        return {
            "phrases": phrases,
            "found": found,
            "correct": correct,
            "precision": precision,
            "recall": recall,
            "f1": f1,
        }

    types = sorted(type_ for type_ in set(found_correct) | set(found_guessed) if type_)
    return {
        "tokens": tokens,
        "accuracy": 100.0 * correct_tags / tokens,
        **scores(found_correct.total(), found_guessed.total(), correct_chunk.total()),
        "types": {t: scores(found_correct[t], found_guessed[t], correct_chunk[t]) for t in types},
    }
