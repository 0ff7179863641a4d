"""Exports architectures of torchvision, timm and transformers with random weights to ONNX.

    export_models.py dynamo|torchscript FOLDER GLOB

Writes FOLDER/NAME.onnx, and NAME.npz with the inputs that it was traced with, of each whose name
fits and that is not there yet. What an exporter refuses is in LEFT_OUT. Image models keep their
usual sizes; those of transformers are small, since what they do is what matters here, and the
texts, or sounds, of some have open dimensions.
"""

import fnmatch
import multiprocessing.pool
import os
import pathlib
import signal
import sys
import traceback

import numpy as np
import timm
import torch
import torchvision
import transformers

TIMEOUT = 300  # seconds for a model

# What the exporters themselves cannot do with these, or not in TIMEOUT.
LEFT_OUT = {
    "dynamo": "dfine encodec fasterrcnn fcos longformer retinanet ssdlite vits xlnet",
    "torchscript": "fnet gpt2 gpt_neo moonshine recurrent_gemma reformer timm-volo_d1_224 upernet"
    " vit_b_32 whisper",
}


class Picked(torch.nn.Module):
    """What `call` makes of a model and its inputs: tensors, where it gives a structure of them."""

    def __init__(self, model, call):
        super().__init__()
        self.model = model
        self.call = call

    def forward(self, *inputs):
        return self.call(self.model, *inputs)


# ---- torchvision --------------------------------------------------------------------------------

CLASSIFIERS = """
    alexnet convnext_tiny densenet121 efficientnet_b0 efficientnet_v2_s googlenet inception_v3:299
    maxvit_t mnasnet1_0 mobilenet_v3_large mobilenet_v3_small regnet_x_400mf regnet_y_400mf resnet18
    resnext50_32x4d shufflenet_v2_x1_0 squeezenet1_1 swin_t swin_v2_t vit_b_32
"""
SEGMENTATION = {
    "deeplabv3_mnv3": "deeplabv3_mobilenet_v3_large",
    "fcn_resnet50": "fcn_resnet50",
    "lraspp": "lraspp_mobilenet_v3_large",
}
# With thresholds that random weights reach, and sides of images that stay as they are.
DETECTION = {
    "fasterrcnn": ("fasterrcnn_mobilenet_v3_large_320_fpn", 320, {"box_score_thresh": 0.0}),
    "fcos": ("fcos_resnet50_fpn", 256, {"score_thresh": 0.0, "min_size": 256}),
    "retinanet": ("retinanet_resnet50_fpn", 256, {"score_thresh": 0.0, "min_size": 256}),
    "ssdlite": ("ssdlite320_mobilenet_v3_large", 320, {}),
}
VIDEO = {
    "mvit_v1_b": (16, 224),
    "r2plus1d_18": (8, 64),
    "r3d_18": (8, 64),
    "s3d": (16, 224),
    "swin3d_t": (8, 64),
}


def image(size, channels=3):
    return {"x": torch.randn(1, channels, size, size)}


def vision_models():
    found = {}
    for entry in CLASSIFIERS.split():
        name, _, size = entry.partition(":")
        build = getattr(torchvision.models, name)
        found[name] = lambda b=build, s=int(size or 224): (b(weights=None), image(s))
    for name, full in SEGMENTATION.items():
        build = getattr(torchvision.models.segmentation, full)

        def segment(build=build):
            model = build(weights=None, weights_backbone=None)
            return Picked(model, lambda m, x: m(x)["out"]), image(128)

        found[name] = segment
    for name, (full, size, options) in DETECTION.items():
        build = getattr(torchvision.models.detection, full)

        def detect(build=build, size=size, options=options):
            model = build(weights=None, weights_backbone=None, **options)
            inputs = {"x": torch.rand(1, 3, size, size)}

            def call(model, x):
                found = model([x[0]])[0]
                return found["boxes"], found["scores"], found["labels"]

            return Picked(model, call), inputs

        found[name] = detect
    for name, (frames, size) in VIDEO.items():
        build = getattr(torchvision.models.video, name)
        found[name] = lambda b=build, f=frames, s=size: (
            b(weights=None),
            {"x": torch.randn(1, 3, f, s, s)},
        )

    def flow():
        model = torchvision.models.optical_flow.raft_small(weights=None)
        inputs = {"a": torch.randn(1, 3, 128, 128), "b": torch.randn(1, 3, 128, 128)}
        return Picked(model, lambda m, a, b: m(a, b, num_flow_updates=3)[-1]), inputs

    found["raft_small"] = flow
    return found


# ---- timm ---------------------------------------------------------------------------------------

TIMM = """
    caformer_s18 cait_xxs24_224 coat_tiny convit_tiny convmixer_768_32 crossvit_tiny_240:240
    cspdarknet53 davit_tiny deit_tiny_distilled_patch16_224 dla34 edgenext_xx_small
    efficientformer_l1 efficientformerv2_s0 efficientvit_b0 ese_vovnet19b_dw eva02_tiny_patch14_224
    fasternet_t0 fastvit_t8 focalnet_tiny_srf gcresnet33ts ghostnet_100 gmlp_ti16_224 hardcorenas_a
    hgnet_tiny hieradet_small hrnet_w18_small inception_next_atto lambda_resnet26t lcnet_050
    levit_128s mambaout_femto mixer_s32_224 mixnet_s mobilenetv4_conv_small mobileone_s0
    mobilevit_xxs mobilevitv2_050 nest_tiny nfnet_f0 pit_ti_224 poolformer_s12 pvt_v2_b0 rdnet_tiny
    regnetz_b16 repvit_m1 res2net50_26w_4s resmlp_12_224 rexnet_100 selecsls42b sequencer2d_s
    shvit_s1 skresnet18 starnet_s1 swiftformer_xs tf_efficientnet_lite0 tinynet_e
    tnt_s_patch16_224 twins_svt_small visformer_tiny vit_tiny_patch16_224 vitamin_small_224
    volo_d1_224 vovnet39a xcit_nano_12_p16_224
"""


def timm_models():
    found = {}
    for entry in TIMM.split():
        name, _, size = entry.partition(":")
        found["timm-" + name] = lambda n=name, s=int(size or 224): (
            timm.create_model(n, pretrained=False, exportable=True),
            image(s),
        )
    return found


# ---- transformers -------------------------------------------------------------------------------

# Sizes under the names that most configurations give them: of encoders alone, of such that read
# texts, of those that read texts and write others, and of those that read sounds.
SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}
TEXT = {**SMALL, "vocab_size": 200}
CAUSAL = {**TEXT, "num_key_value_heads": 2}
TWO_SIDED = {
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "vocab_size": 220,
}
T5 = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "vocab_size": 200}
SOUND = {**TEXT, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}
DETECTOR = {
    "d_model": 64,
    "encoder_hidden_dim": 64,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "decoder_layers": 2,
    "num_queries": 20,
    "decoder_in_channels": [64, 64, 64],
}
STAGES = {"hidden_sizes": [16, 32, 64, 64], "depths": [1, 1, 1, 1]}
BOXES = ("logits", "pred_boxes")


def ids(*shape, first=0):
    return torch.randint(first, 200, shape)


def text(length=16, mask=True):
    inputs = {"input_ids": ids(1, length)}
    if mask:
        inputs["attention_mask"] = torch.ones(1, length, dtype=torch.long)
    return inputs


def two_texts(first=0):
    return {"input_ids": ids(1, 12, first=first), "decoder_input_ids": ids(1, 7, first=first)}


def normal(**shapes):
    return {name: torch.randn(shape) for name, shape in shapes.items()}


def pixels(size):
    return normal(pixel_values=(1, 3, size, size))


OPEN_TEXT = {"input_ids": {0: "batch", 1: "length"}, "attention_mask": {0: "batch", 1: "length"}}
OPEN_SOUND = {"input_values": {1: "samples"}}

# name: (class of the model, of its configuration, inputs, options of the configuration, [open
# dimensions, [outputs by name or position; the first]])
TRANSFORMERS = {
    # texts
    "albert": ("AlbertModel", "AlbertConfig", text, {**TEXT, "embedding_size": 32}, OPEN_TEXT),
    "bert": ("BertModel", "BertConfig", text, TEXT, OPEN_TEXT),
    "bigbird": ("BigBirdModel", "BigBirdConfig", text, {**TEXT, "attention_type": "original_full"}),
    "canine": (
        "CanineModel",
        "CanineConfig",
        lambda: text(64, mask=False),
        {**SMALL, "local_transformer_stride": 16},
    ),
    "convbert": ("ConvBertModel", "ConvBertConfig", text, {**TEXT, "embedding_size": 64}),
    "deberta_v2": (
        "DebertaV2Model",
        "DebertaV2Config",
        text,
        {
            **TEXT,
            "relative_attention": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_buckets": 8,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
        },
        OPEN_TEXT,
    ),
    "distilbert": (
        "DistilBertForQuestionAnswering",
        "DistilBertConfig",
        text,
        {"dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128, "vocab_size": 200},
        OPEN_TEXT,
        ("start_logits", "end_logits"),
    ),
    "electra": (
        "ElectraForTokenClassification",
        "ElectraConfig",
        text,
        {**TEXT, "embedding_size": 32},
        OPEN_TEXT,
    ),
    "esm": (
        "EsmModel",
        "EsmConfig",
        text,
        {**TEXT, "pad_token_id": 1, "position_embedding_type": "rotary"},
    ),
    "fnet": ("FNetModel", "FNetConfig", lambda: text(mask=False), TEXT),
    "funnel": (
        "FunnelModel",
        "FunnelConfig",
        text,
        {
            "vocab_size": 200,
            "d_model": 64,
            "n_head": 4,
            "d_head": 16,
            "d_inner": 128,
            "block_sizes": [1, 1],
        },
    ),
    "layoutlm": (
        "LayoutLMModel",
        "LayoutLMConfig",
        lambda: {**text(mask=False), "bbox": torch.tensor([[[10, 20, 30, 40]] * 16])},
        TEXT,
    ),
    "longformer": (
        "LongformerModel",
        "LongformerConfig",
        text,
        {**TEXT, "attention_window": 8, "pad_token_id": 1},
    ),
    "mobilebert": (
        "MobileBertModel",
        "MobileBertConfig",
        text,
        {
            **TEXT,
            "intermediate_size": 64,
            "embedding_size": 32,
            "intra_bottleneck_size": 32,
            "true_hidden_size": 32,
        },
    ),
    "modernbert": (
        "ModernBertModel",
        "ModernBertConfig",
        text,
        {
            **TEXT,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "cls_token_id": 1,
            "sep_token_id": 2,
        },
        OPEN_TEXT,
    ),
    "mpnet": ("MPNetModel", "MPNetConfig", text, TEXT, OPEN_TEXT),
    "reformer": (
        "ReformerModel",
        "ReformerConfig",
        lambda: text(mask=False),
        {
            "attn_layers": ["local", "local"],
            "hidden_size": 64,
            "num_attention_heads": 2,
            "attention_head_size": 32,
            "local_attn_chunk_length": 8,
            "axial_pos_embds": False,
            "max_position_embeddings": 64,
            "feed_forward_size": 64,
            "vocab_size": 200,
        },
    ),
    "roberta": ("RobertaForSequenceClassification", "RobertaConfig", text, TEXT, OPEN_TEXT),
    "squeezebert": ("SqueezeBertModel", "SqueezeBertConfig", text, {**TEXT, "embedding_size": 64}),
    "xlnet": (
        "XLNetModel",
        "XLNetConfig",
        text,
        {"vocab_size": 200, "d_model": 64, "n_layer": 2, "n_head": 4, "d_inner": 128},
    ),
    "yoso": ("YosoModel", "YosoConfig", text, {**TEXT, "use_expectation": True}),
    # what writes texts
    "bloom": (
        "BloomForCausalLM",
        "BloomConfig",
        text,
        {"hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": 200},
    ),
    "gemma2": (
        "Gemma2ForCausalLM",
        "Gemma2Config",
        text,
        {**CAUSAL, "head_dim": 16, "sliding_window": 8},
    ),
    "gemma3": (
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        text,
        {**CAUSAL, "head_dim": 16, "sliding_window": 8},
    ),
    "gpt2": (
        "GPT2LMHeadModel",
        "GPT2Config",
        lambda: text(mask=False),
        {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 200},
        OPEN_TEXT,
    ),
    "gpt_neo": (
        "GPTNeoForCausalLM",
        "GPTNeoConfig",
        lambda: text(mask=False),
        {
            "hidden_size": 64,
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 8,
            "vocab_size": 200,
        },
    ),
    "llama": ("LlamaForCausalLM", "LlamaConfig", text, CAUSAL, OPEN_TEXT),
    "mamba": (
        "MambaForCausalLM",
        "MambaConfig",
        lambda: text(mask=False),
        {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 200, "state_size": 8},
    ),
    "mamba2": (
        "Mamba2ForCausalLM",
        "Mamba2Config",
        lambda: text(mask=False),
        {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "vocab_size": 200,
            "state_size": 8,
            "num_heads": 4,
            "head_dim": 16,
            "n_groups": 1,
            "chunk_size": 8,
        },
    ),
    "opt": (
        "OPTForCausalLM",
        "OPTConfig",
        text,
        {**TEXT, "ffn_dim": 128, "word_embed_proj_dim": 64},
    ),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", text, {**CAUSAL, "pad_token_id": 0}),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", text, {**CAUSAL, "head_dim": 16}, OPEN_TEXT),
    "recurrent_gemma": (
        "RecurrentGemmaForCausalLM",
        "RecurrentGemmaConfig",
        lambda: text(mask=False),
        {
            **TEXT,
            "num_hidden_layers": 3,
            "num_key_value_heads": 1,
            "lru_width": 64,
            "attention_window_size": 8,
        },
    ),
    "rwkv": (
        "RwkvModel",
        "RwkvConfig",
        lambda: text(mask=False),
        {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "vocab_size": 200,
            "attention_hidden_size": 32,
            "intermediate_size": 64,
        },
    ),
    # what makes texts of texts
    "bart": ("BartForConditionalGeneration", "BartConfig", two_texts, TWO_SIDED),
    "m2m100": (
        "M2M100ForConditionalGeneration",
        "M2M100Config",
        lambda: two_texts(first=2),
        TWO_SIDED,
    ),
    "marian": ("MarianMTModel", "MarianConfig", two_texts, {**TWO_SIDED, "pad_token_id": 0}),
    "t5": ("T5ForConditionalGeneration", "T5Config", two_texts, T5),
    "t5_encoder": ("T5EncoderModel", "T5Config", text, T5, OPEN_TEXT),
    # sounds
    "ast": (
        "ASTModel",
        "ASTConfig",
        lambda: normal(input_values=(1, 128, 64)),
        {**SMALL, "max_length": 128, "num_mel_bins": 64},
    ),
    "conformer": (
        "Wav2Vec2ConformerModel",
        "Wav2Vec2ConformerConfig",
        lambda: normal(input_values=(1, 4000)),
        {**TEXT, "position_embeddings_type": "relative"},
    ),
    "encodec": (
        "EncodecModel",
        "EncodecConfig",
        lambda: normal(input_values=(1, 1, 4000)),
        {"num_filters": 8, "hidden_size": 32, "codebook_size": 64, "codebook_dim": 32},
        None,
        (1,),
    ),
    "hubert": ("HubertModel", "HubertConfig", lambda: normal(input_values=(1, 4000)), SOUND),
    "moonshine": (
        "MoonshineForConditionalGeneration",
        "MoonshineConfig",
        lambda: {**normal(input_values=(1, 4000)), "decoder_input_ids": ids(1, 5)},
        {
            "hidden_size": 64,
            "encoder_num_hidden_layers": 2,
            "decoder_num_hidden_layers": 2,
            "encoder_num_attention_heads": 4,
            "decoder_num_attention_heads": 4,
            "intermediate_size": 128,
            "vocab_size": 200,
        },
    ),
    "parakeet": (
        "ParakeetEncoder",
        "ParakeetEncoderConfig",
        lambda: normal(input_features=(1, 64, 80)),
        SMALL,
    ),
    "sew": ("SEWModel", "SEWConfig", lambda: normal(input_values=(1, 4000)), SOUND),
    "speech2text": (
        "Speech2TextForConditionalGeneration",
        "Speech2TextConfig",
        lambda: {**normal(input_features=(1, 64, 80)), "decoder_input_ids": ids(1, 5)},
        TWO_SIDED,
    ),
    "speecht5_hifigan": (
        "SpeechT5HifiGan",
        "SpeechT5HifiGanConfig",
        lambda: normal(spectrogram=(1, 40, 80)),
        {"model_in_dim": 80, "upsample_initial_channel": 64},
    ),
    "vits": (
        "VitsModel",
        "VitsConfig",
        lambda: {"input_ids": torch.randint(0, 30, (1, 10))},
        {
            "vocab_size": 38,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "ffn_dim": 64,
            "flow_size": 32,
            "spectrogram_bins": 33,
            "upsample_initial_channel": 32,
            "posterior_encoder_num_wavenet_layers": 2,
            "prior_encoder_num_wavenet_layers": 2,
            "wavenet_dilation_rate": 1,
            "noise_scale": 0.0,
            "noise_scale_duration": 0.0,
        },
    ),
    "wav2vec2": (
        "Wav2Vec2ForCTC",
        "Wav2Vec2Config",
        lambda: normal(input_values=(1, 4000)),
        SOUND,
        OPEN_SOUND,
    ),
    "wavlm": ("WavLMModel", "WavLMConfig", lambda: normal(input_values=(1, 4000)), SOUND),
    "whisper": (
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        lambda: {**normal(input_features=(1, 80, 200)), "decoder_input_ids": ids(1, 7)},
        {
            **TWO_SIDED,
            "max_source_positions": 100,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
            "begin_suppress_tokens": None,
            "suppress_tokens": None,
        },
    ),
    # images
    "beit": (
        "BeitModel",
        "BeitConfig",
        lambda: pixels(32),
        {**SMALL, "image_size": 32, "patch_size": 8, "use_relative_position_bias": True},
    ),
    "blip_vision": (
        "BlipVisionModel",
        "BlipVisionConfig",
        lambda: pixels(32),
        {**SMALL, "image_size": 32, "patch_size": 8},
    ),
    "clip": (
        "CLIPModel",
        "CLIPConfig",
        lambda: {**text(mask=False), **pixels(32)},
        {
            "text_config": {**TEXT, "projection_dim": 32, "bos_token_id": 0, "eos_token_id": 199},
            "vision_config": {**SMALL, "image_size": 32, "patch_size": 8, "projection_dim": 32},
        },
        None,
        ("logits_per_image",),
    ),
    "convnextv2": ("ConvNextV2Model", "ConvNextV2Config", lambda: pixels(64), STAGES),
    "depth_anything": (
        "DepthAnythingForDepthEstimation",
        "DepthAnythingConfig",
        lambda: pixels(56),
        {
            "reassemble_hidden_size": 384,
            "neck_hidden_sizes": [16, 32, 64, 64],
            "fusion_hidden_size": 32,
        },
    ),
    "detr": (
        "DetrForObjectDetection",
        "DetrConfig",
        lambda: pixels(64),
        {
            **TWO_SIDED,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "num_queries": 10,
            "use_timm_backbone": False,
            "use_pretrained_backbone": False,
            "backbone": None,
            "backbone_config": None,
        },
        None,
        BOXES,
    ),
    "dfine": (
        "DFineForObjectDetection",
        "DFineConfig",
        lambda: pixels(128),
        DETECTOR,
        None,
        BOXES,
    ),
    "dinov2": (
        "Dinov2Model",
        "Dinov2Config",
        lambda: pixels(56),
        {**SMALL, "image_size": 56, "patch_size": 14},
    ),
    "dpt": (
        "DPTForDepthEstimation",
        "DPTConfig",
        lambda: pixels(64),
        {
            **SMALL,
            "image_size": 64,
            "patch_size": 16,
            "num_hidden_layers": 4,
            "backbone_out_indices": [0, 1, 2, 3],
            "neck_hidden_sizes": [16, 32, 64, 64],
            "fusion_hidden_size": 32,
        },
    ),
    "glpn": (
        "GLPNForDepthEstimation",
        "GLPNConfig",
        lambda: pixels(64),
        {**STAGES, "num_attention_heads": [1, 2, 4, 4]},
    ),
    "levit": (
        "LevitModel",
        "LevitConfig",
        lambda: pixels(64),
        {
            "image_size": 64,
            "hidden_sizes": [32, 48, 64],
            "num_attention_heads": [2, 3, 4],
            "depths": [1, 1, 1],
            "key_dim": [8, 8, 8],
        },
    ),
    "mobilevit": (
        "MobileViTForSemanticSegmentation",
        "MobileViTConfig",
        lambda: pixels(64),
        {"image_size": 64},
    ),
    "perceiver": (
        "PerceiverModel",
        "PerceiverConfig",
        lambda: normal(inputs=(1, 20, 32)),
        {
            "d_model": 32,
            "d_latents": 32,
            "num_latents": 8,
            "num_self_attends_per_block": 2,
            "num_self_attention_heads": 2,
            "num_cross_attention_heads": 2,
        },
    ),
    "rtdetr": (
        "RTDetrForObjectDetection",
        "RTDetrConfig",
        lambda: pixels(128),
        DETECTOR,
        None,
        BOXES,
    ),
    "sam_vision": (
        "SamVisionModel",
        "SamVisionConfig",
        lambda: pixels(64),
        {
            "image_size": 64,
            "patch_size": 8,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "output_channels": 16,
            "window_size": 4,
            "global_attn_indexes": [1],
            "mlp_dim": 64,
        },
    ),
    "segformer": (
        "SegformerForSemanticSegmentation",
        "SegformerConfig",
        lambda: pixels(64),
        {**STAGES, "decoder_hidden_size": 32, "num_attention_heads": [1, 2, 4, 4]},
    ),
    "siglip": (
        "SiglipVisionModel",
        "SiglipVisionConfig",
        lambda: pixels(32),
        {**SMALL, "image_size": 32, "patch_size": 8},
    ),
    "superpoint": (
        "SuperPointForKeypointDetection",
        "SuperPointConfig",
        lambda: pixels(64),
        {},
    ),
    "swin2sr": (
        "Swin2SRForImageSuperResolution",
        "Swin2SRConfig",
        lambda: pixels(32),
        {
            "image_size": 32,
            "embed_dim": 32,
            "depths": [2, 2],
            "num_heads": [2, 2],
            "window_size": 8,
        },
    ),
    "timesformer": (
        "TimesformerModel",
        "TimesformerConfig",
        lambda: normal(pixel_values=(1, 8, 3, 32, 32)),
        {**SMALL, "image_size": 32, "patch_size": 8, "num_frames": 8},
    ),
    "upernet": (
        "UperNetForSemanticSegmentation",
        "UperNetConfig",
        lambda: pixels(64),
        {"hidden_size": 64},
    ),
    "vivit": (
        "VivitModel",
        "VivitConfig",
        lambda: normal(pixel_values=(1, 8, 3, 32, 32)),
        {**SMALL, "image_size": 32, "num_frames": 8, "tubelet_size": [2, 8, 8]},
    ),
    "yolos": (
        "YolosForObjectDetection",
        "YolosConfig",
        lambda: pixels(64),
        {**SMALL, "image_size": [64, 64], "patch_size": 16, "num_detection_tokens": 10},
        None,
        BOXES,
    ),
    # series
    "patchtsmixer": (
        "PatchTSMixerForPrediction",
        "PatchTSMixerConfig",
        lambda: normal(past_values=(1, 64, 3)),
        {
            "num_input_channels": 3,
            "context_length": 64,
            "prediction_length": 8,
            "d_model": 16,
            "num_layers": 2,
            "patch_length": 8,
            "patch_stride": 8,
        },
    ),
}


def build_transformer(name, config_name, options):
    """With PyTorch's own attention, where the model knows it."""
    for attention in ("sdpa", "eager"):
        config = getattr(transformers, config_name)(**options)
        config._attn_implementation = attention
        try:
            model = getattr(transformers, name)(config)
        except ValueError:
            continue
        if hasattr(model.config, "use_cache"):
            model.config.use_cache = False
        return model
    raise ValueError(f"{name} takes neither attention")


def transformer(name, config_name, make_inputs, options, opened=None, outputs=(0,)):
    model, inputs = build_transformer(name, config_name, options), make_inputs()
    keys = list(inputs)

    def call(model, *tensors):
        result = model(**dict(zip(keys, tensors)))
        return tuple(result[o] if isinstance(o, int) else getattr(result, o) for o in outputs)

    return Picked(model, call), inputs, opened


# ---- exporting ----------------------------------------------------------------------------------


def export(exporter, folder, name, make):
    torch.manual_seed(0)
    model, inputs, *rest = make()
    opened = {k: v for k, v in ((rest and rest[0]) or {}).items() if k in inputs}
    np.savez(folder / f"{name}.npz", **{k: v.numpy() for k, v in inputs.items()})
    part = folder / f"{name}.part"
    options = {"input_names": list(inputs), "verbose": False}
    if exporter == "torchscript":
        options |= {"dynamo": False, "opset_version": 18, "dynamic_axes": opened}
    else:
        options |= {"dynamo": True, "external_data": False}
        if opened:
            dims = [dict.fromkeys(opened.get(k, {}), torch.export.Dim.DYNAMIC) for k in inputs]
            options["dynamic_shapes"] = (tuple(d or None for d in dims),)
    with torch.no_grad():
        torch.onnx.export(model.eval(), tuple(inputs.values()), part, **options)
    part.rename(folder / f"{name}.onnx")


def export_alone(exporter, folder, name, make):
    """In a process of its own, what is said in NAME.log. True if it could be exported."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    status = 1
    try:
        signal.alarm(TIMEOUT)
        torch.set_num_threads(1)
        with open(folder / f"{name}.log", "w", encoding="utf-8") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            try:
                export(exporter, folder, name, make)
                status = 0
            except Exception:
                traceback.print_exc()
            sys.stderr.flush()
    finally:
        os._exit(status)


def main():
    exporter, folder, pattern = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
    made = vision_models() | timm_models()
    made |= {n: lambda row=row: transformer(*row) for n, row in TRANSFORMERS.items()}
    left_out = LEFT_OUT[exporter].split()
    names = [n for n in sorted(made) if fnmatch.fnmatch(n, pattern) and n not in left_out]
    names = [n for n in names if not (folder / f"{n}.onnx").exists()]
    with multiprocessing.pool.ThreadPool(2) as pool:
        rows = [(exporter, folder, name, made[name]) for name in names]
        failed = [n for n, done in zip(names, pool.starmap(export_alone, rows)) if not done]
    for name in failed:
        print(f"not exported: {name}, see {folder / name}.log", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
