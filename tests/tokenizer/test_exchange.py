"""Context, question and answer as a policy writes them: joined they are what the library sends."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from harness.errors import UnsupportedModel
from harness.tokenizer.policy import continuation, encode, encoder

CHATML = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system
You are a helpful AI assistant.<|im_end|>
' }}{% endif %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"""  # as SmolLM2-Instruct has it
TRIMMED = """<s>{% for m in messages %}{{ '[INST] ' + m.content | trim + ' [/INST]' if m.role == 'user' else ' ' + m.content + '</s>' }}{% endfor %}"""
SHOUTING = "{% for m in messages %}{{ m.content | upper }}{% endfor %}"
ENDS = [
    ("The dog ran. The key is 42.", " What is the key?"),
    ("  two spaces before", "and none between"),
    ("a line\n", "\nand a question \n"),
    ("caf\u00e9 \u4e2d", "\u6587?"),
    ("You are a helpful AI assistant.", " What are you?"),
]


def built(template: str) -> PreTrainedTokenizerFast:
    """A byte-level BPE whose merges reach across a space and a line's end."""
    one = Tokenizer(models.BPE())
    one.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    one.decoder = decoders.ByteLevel()
    special = ["<|im_start|>", "<|im_end|>", "<s>", "</s>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=special, initial_alphabet=alphabet)
    one.train_from_iterator(
        [" ".join(part) for part in ENDS] * 4 + ["key. What is", "ran. The"] * 9, trainer
    )
    made = PreTrainedTokenizerFast(tokenizer_object=one, bos_token="<s>", eos_token="</s>")
    made.chat_template = template
    return made


@pytest.fixture(scope="module", params=["chatml", "trimmed"])
def tokenizer(request):
    return built({"chatml": CHATML, "trimmed": TRIMMED}[request.param])


@pytest.mark.parametrize(("context", "question"), ENDS)
def test_a_rendered_exchange_is_the_library_s_own(tokenizer, context, question) -> None:
    before, after, answer = encoder("chat").exchange(tokenizer, context, question, "It is 42.")
    turns = [{"role": "user", "content": context + question}]
    whole = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
    assert [*before.ids, *after.ids] == whole
    assert before.text + after.text == tokenizer.apply_chat_template(
        turns, add_generation_prompt=True, tokenize=False
    )
    # the question is none of what is pruned, and the context all of it but a token that both share
    assert before.text.rstrip().endswith(context.strip()) and question.strip() in after.text
    assert before.text.startswith(tokenizer.decode(before.ids))
    shared = tokenizer.decode(whole[len(before.ids)])
    assert len(tokenizer.decode(before.ids)) > len(before.text) - len(shared)
    head = before.text[: before.text.rindex(context.strip())]
    inside = [head.startswith(tokenizer.decode(before.ids[: before.prefix + n])) for n in (0, 1)]
    assert inside == [True, False]
    turns.append({"role": "assistant", "content": "It is 42."})
    ended = tokenizer.apply_chat_template(turns, return_dict=False)
    assert ended[: len(whole) + len(answer.ids)] == [*whole, *answer.ids]


def test_a_template_that_rewrites_what_is_said_has_no_place_to_cut() -> None:
    with pytest.raises(UnsupportedModel, match="other words"):
        encoder("chat").exchange(built(SHOUTING), "the dog ran", " where ?", "away")
    with pytest.raises(UnsupportedModel, match="no chat template"):
        encoder("chat").exchange(built(""), "the dog ran", " where ?", "away")


@pytest.mark.parametrize("policy", ["explicit", "raw", "library"])
def test_without_a_template_each_is_read_by_itself(policy) -> None:
    tokenizer = built(CHATML)
    parts = encoder(policy).exchange(tokenizer, "The dog ran.", " Where?", "away")
    texts = (" Where?", " away")
    apart = [continuation(policy, tokenizer, text).ids for text in texts]
    assert [part.ids for part in parts] == [encode(policy, tokenizer, "The dog ran.").ids, *apart]
