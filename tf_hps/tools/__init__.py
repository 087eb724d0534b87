"""The command `tf-hps`: what is in a store or a checkpoint, whether it is sound, in and out."""
