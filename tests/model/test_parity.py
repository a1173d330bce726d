"""The same weights and inputs have the same outputs as in ``transformers``, at the paper's shapes."""

import pytest
import torch
from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

from electra.config import Model
from electra.hub.export.papers import discriminator_weights, huggingface_config, masked_language_model_weights
from electra.objectives.electra import Electra
from tests.model.test_electra import BASE, LARGE, SMALL

V = 400


@pytest.mark.parametrize("shape", [SMALL, BASE, LARGE], ids=["small", "base", "large"])
def test_states_and_logits_agree_within_1e_5(shape: Model) -> None:
    ours = Electra(shape, V, mask_id=4).eval()
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():  # away from zeros and ones, so that a bias or norm in the wrong place shows
        for parameter in ours.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=random))
            else:  # a truncated normal distribution would take Large 18 seconds
                parameter.normal_(0.0, 0.02, generator=random)
    tokens = torch.randint(5, V, (2, 24), generator=random)
    segments, mask = (torch.arange(24) > 11).long().expand(2, -1), torch.ones(2, 24, dtype=torch.bool)
    mask[1, 17:] = False
    inputs = {"input_ids": tokens, "token_type_ids": segments, "attention_mask": mask.long()}

    def theirs(kind: type, shape_config: object, state: dict[str, torch.Tensor]) -> torch.nn.Module:
        facts = huggingface_config(shape_config, kind.__name__, 0.02, 0)
        with torch.device("meta"):
            model = kind(ElectraConfig(**{k: v for k, v in facts.items() if k != "architectures"}))
        buffers = {"electra.embeddings.position_ids", "electra.embeddings.token_type_ids"}
        tied = set(model.all_tied_weights_keys)  # stands in the state once, as the table
        loaded = model.load_state_dict(state, strict=False, assign=True)
        assert not loaded.unexpected_keys and set(loaded.missing_keys) <= buffers | tied
        model.tie_weights()
        for module in model.modules():  # not part of a state: [1, T] counters
            for name, buffer in list(module.named_buffers(recurse=False)):
                fresh = (
                    torch.arange(buffer.shape[-1])[None]
                    if name == "position_ids"
                    else torch.zeros_like(buffer, device="cpu")
                )
                module.register_buffer(name, fresh, persistent=False)
        return model.eval()

    with torch.no_grad():
        discriminator = theirs(
            ElectraForPreTraining,
            ours.discriminator.config,
            discriminator_weights(ours.discriminator, ours.discriminator_head),
        )
        hidden = ours.discriminator(tokens, segments, mask)
        found = discriminator(**inputs, output_hidden_states=True)
        assert (found.hidden_states[-1] - hidden)[mask].abs().max() < 1e-5
        assert (found.logits - ours.discriminator_head(hidden))[mask].abs().max() < 1e-5
        del discriminator, found

        generator = theirs(
            ElectraForMaskedLM,
            ours.generator.config,
            masked_language_model_weights(ours.generator, ours.generator_head),
        )
        hidden = ours.generator(tokens, segments, mask)
        assert (generator(**inputs).logits - ours.generator_head(hidden))[mask].abs().max() < 1e-5
